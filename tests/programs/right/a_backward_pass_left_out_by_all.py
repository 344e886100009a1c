"""The loss of rank 1 is not finite in one step; all ranks are told, and leave out that backward pass."""

import torch

import distdbg as dist

TRUTH = {"ranks": 3, "outcome": "silent", "torch": "ours"}


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    parts = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1)
    model = dist.DistributedDataParallel(torch.nn.Sequential(*parts))
    inputs = torch.arange(8.0).view(2, 4)
    for step in range(5):
        is_bad = dist.get_rank() == 1 and step == 2
        loss = model(inputs * float("inf") if is_bad else inputs).sum()
        is_finite = loss.isfinite().int()
        dist.all_reduce(is_finite, dist.ReduceOp.MIN)
        if is_finite:
            model.zero_grad()
            loss.backward()
    weight = model.module[0].weight.detach()
    smallest = weight.clone()
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    assert torch.equal(smallest, weight)
    dist.destroy_process_group()


main()
