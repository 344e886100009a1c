"""A branch of the model is not used on rank 1, so its gradient hook never fires there."""

import torch

import distdbg as dist

TRUTH = {
    "ranks": 2,
    "outcome": "MismatchError",
    "op": "all_reduce",
    "says": ["all_reduce #3", "float32[1,6]", "float32[1,4]"],
    "torch": "needs",
}


def reduce_gradient(parameter):
    dist.all_reduce(parameter.grad)  # <- all


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    left = torch.nn.Linear(4, 1, bias=False)
    right = torch.nn.Linear(6, 1, bias=False)
    for layer in (left, right):
        layer.weight.register_post_accumulate_grad_hook(reduce_gradient)
    for step in range(2):
        uses_right = step == 1 and rank == 0
        output = left(torch.ones(2, 4)).sum()
        output.backward()
        if uses_right:
            right(torch.ones(2, 6)).sum().backward()
    left(torch.ones(2, 4)).sum().backward()
    dist.destroy_process_group()


main()
