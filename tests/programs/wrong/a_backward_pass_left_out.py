"""The loss of rank 1 is not finite in one step, so it leaves out the backward pass that the others run."""

import torch

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "odd": [1],
    "says": ["DDP step 3", "rank 1 skipped a backward pass, in which ranks 0,2 wait"],
    "torch": "ours",
}


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    parts = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    model = dist.DistributedDataParallel(torch.nn.Sequential(*parts))
    inputs = torch.arange(8.0).view(2, 4)
    for step in range(5):
        is_bad = dist.get_rank() == 1 and step == 2
        loss = model(inputs * float("inf") if is_bad else inputs).sum()  # <- odd
        if loss.isfinite():
            model.zero_grad()
            loss.backward()  # <- others
    dist.destroy_process_group()


main()
