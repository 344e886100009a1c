"""all_reduce of sparse COO tensors, as gloo has it: the entries of all ranks, added up where they meet."""

from __future__ import annotations

from typing import Any

import torch

from distdbg.errors import UsageError
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.runtime.api import calls
from distdbg.runtime.groups.group import ProcessGroup


def all_reduce_sparse(
    group: ProcessGroup, tensor: Any, op: ReduceOp, timeout_s: float | None
) -> None:
    """Add up one sparse tensor over all ranks, in place; blocks until it is done."""
    if tensor.layout is not torch.sparse_coo:
        raise UsageError(
            f"all_reduce: tensor has layout {tensor.layout}; only dense and sparse COO tensors can "
            "be used",
            hint="pass tensor.to_sparse_coo() or tensor.to_dense()",
        )
    if op.op is not RedOpType.SUM:
        raise UsageError(f"all_reduce: sparse tensors have SUM only, not {op.op.name}")
    mine = tensor.detach().coalesce()
    shape = [mine.sparse_dim(), mine.dense_dim(), *mine.shape]
    facts = torch.tensor([mine._nnz(), *shape], dtype=torch.int64)
    everyone = torch.empty(group.size() * facts.numel(), dtype=torch.int64)
    group.run(
        calls.all_gather_single(
            group.size(), group.rank(), everyone, facts, timeout_s, "all_reduce of a sparse tensor"
        )
    )
    table = everyone.view(group.size(), -1).tolist()
    differ = [rank for rank, row in enumerate(table) if row[1:] != shape]
    if differ:
        raise UsageError(
            f"all_reduce: the sparse tensors differ in shape: rank {group.ranks[group.rank()]} has "
            f"{tuple(mine.shape)}, rank {group.ranks[differ[0]]} has {tuple(table[differ[0]][3:])}"
        )
    counts = [row[0] for row in table]
    indices = [torch.empty((mine.sparse_dim(), n), dtype=torch.int64) for n in counts]
    values = [mine.values().new_empty((n, *mine.values().shape[1:])) for n in counts]
    for blocks, own in ((indices, mine.indices()), (values, mine.values())):
        group.run(
            calls.all_gather(
                group.size(),
                group.rank(),
                blocks,
                own.contiguous(),
                timeout_s,
                "all_reduce of a sparse tensor",
            )
        )
    total = torch.sparse_coo_tensor(
        torch.cat(indices, dim=1), torch.cat(values), size=tuple(mine.shape)
    ).coalesce()
    with torch.no_grad():
        tensor.copy_(total)
