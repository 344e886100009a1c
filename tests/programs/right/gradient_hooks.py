"""What data-parallel training does: hooks reduce each gradient as soon as it is there, and all
are awaited at the end.
"""

import torch

import distdbg as dist

TRUTH = {"ranks": 2, "outcome": "silent", "torch": "needs"}


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    works = []
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
        parameter.register_post_accumulate_grad_hook(
            lambda p: works.append(dist.all_reduce(p.grad, async_op=True))
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        inputs = torch.full((3, 4), float(rank + step))
        model(inputs).square().mean().backward()
        for work in works:
            work.wait()
        works.clear()
        for parameter in model.parameters():
            parameter.grad /= size
        optimizer.step()
        optimizer.zero_grad()
    weights = [torch.zeros(1, 8) for _ in range(size)]
    dist.all_gather(weights, model[2].weight.data)
    assert torch.equal(weights[0], weights[1])
    dist.destroy_process_group()


main()
