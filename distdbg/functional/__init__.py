"""Functional collectives: ops that leave their arguments alone and return new arrays.

    from distdbg import functional as F
    total = F.all_reduce(x)                       # x is as it was
    rows = F.all_gather(x, gather_dim=1)
    loss = F.all_reduce(model(batch).sum())       # gradients flow through it, with a torch tensor

collectives.py  one array in, one array out: all_reduce, all_gather, reduce_scatter, all_to_all, ...
lists.py        a list of arrays on one side: all_gather_list, gather, scatter, coalesced ops, ...
op.py           carries an op out, at once or with `async_op=True`
arguments.py    groups, meshes, names of reduce ops and dimensions, as users give them

What needs autograd is in torch_bridge/functional.py. The names of torch's own functional collectives are here
as well, for programs that are moved over: all_gather_tensor, reduce_scatter_tensor, permute_tensor, ...
"""

from distdbg.functional.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    permute,
    reduce,
    reduce_scatter,
)
from distdbg.functional.lists import (
    all_gather_into_tensor_coalesced,
    all_gather_list,
    all_reduce_coalesced,
    all_to_all_list,
    gather,
    reduce_scatter_list,
    reduce_scatter_tensor_coalesced,
    scatter,
)
from distdbg.functional.op import Result, wait_tensor

# torch's names; those with `_autograd` are what the plain ones are here for a tensor that requires grad.
all_gather_tensor = all_gather_single = all_gather
all_gather_tensor_autograd = all_gather_single_autograd = all_gather
reduce_scatter_tensor = reduce_scatter_single = reduce_scatter
reduce_scatter_tensor_autograd = reduce_scatter_single_autograd = reduce_scatter
all_to_all_single = all_to_all_single_autograd = all_to_all
permute_tensor = permute
all_gather_single_coalesced = all_gather_into_tensor_coalesced
reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

__all__ = [
    "Result",
    "all_gather",
    "all_gather_into_tensor_coalesced",
    "all_gather_list",
    "all_gather_single",
    "all_gather_single_autograd",
    "all_gather_single_coalesced",
    "all_gather_tensor",
    "all_gather_tensor_autograd",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_list",
    "all_to_all_single",
    "all_to_all_single_autograd",
    "broadcast",
    "gather",
    "permute",
    "permute_tensor",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_list",
    "reduce_scatter_single",
    "reduce_scatter_single_autograd",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_autograd",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "wait_tensor",
]
