"""The loss of rank 1 is not finite in one step, so it leaves the backward pass out; it has no buffers."""

import torch

import distdbg as dist

TRUTH = {
    "ranks": 3,
    "outcome": "MismatchError",
    "op": "DDP",
    "odd": [1],
    "says": ["DDP step 3", "rank 1 skipped a backward pass that ranks 0,2 ran"],
    "torch": "ours",
}


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = dist.DistributedDataParallel(torch.nn.Linear(4, 1))
    inputs = torch.arange(8.0).view(2, 4)
    for step in range(5):
        is_bad = dist.get_rank() == 1 and step == 2
        loss = model(inputs * float("inf") if is_bad else inputs).sum()
        if loss.isfinite():
            model.zero_grad()
            loss.backward()  # <- all
    dist.destroy_process_group()


main()
