"""Calls that one rank alone can see to be wrong: they raise before anything is sent.

Each case says who makes the call: all members, the root, or all but the root. All of them leave the
group usable, with torch as well, so a program goes on after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from differential.values import make_values

if TYPE_CHECKING:
    from differential.context import Context


class Case(NamedTuple):
    """One wrong call."""

    call: Callable[[Context], Any]
    who: str = "all"
    """'all', 'root' or 'others'."""
    raises: bool = True
    """False: the call is a lenient one, that has to pass."""


def takes_part(case: Case, context: Context) -> bool:
    """Whether this rank makes the call."""
    return case.who == "all" or (case.who == "root") == context.is_root


def _x(c: Context, dtype: str = "float32", count: int = 3) -> Any:
    return c.to_array(make_values(dtype, (count,), c.index))


def _list(c: Context, dtype: str = "float32", count: int = 3, length: int = 0) -> list[Any]:
    return [_x(c, dtype, count) for _ in range(length or c.size)]


CASES: dict[str, Case] = {
    "broadcast of a list": Case(
        lambda c: c.dist.broadcast([1.0, 2.0], c.members[0], group=c.group)
    ),
    "broadcast without a source": Case(lambda c: c.dist.broadcast(_x(c), group=c.group)),
    "broadcast with both sources": Case(
        lambda c: c.dist.broadcast(_x(c), src=c.members[0], group=c.group, group_src=0)
    ),
    "broadcast from a rank outside": Case(
        lambda c: c.dist.broadcast(_x(c), group_src=c.size + 1, group=c.group)
    ),
    "all_reduce of a number": Case(lambda c: c.dist.all_reduce(1.0, group=c.group)),
    "all_reduce with a text for an op": Case(
        lambda c: c.dist.all_reduce(_x(c), op="sum", group=c.group)
    ),
    "all_reduce MAX of complex": Case(
        lambda c: c.dist.all_reduce(_x(c, "complex64"), op=c.dist.ReduceOp.MAX, group=c.group)
    ),
    "all_reduce_coalesced of two dtypes": Case(
        lambda c: c.dist.all_reduce_coalesced([_x(c), _x(c, "int32")], group=c.group)
    ),
    "reduce without a destination": Case(lambda c: c.dist.reduce(_x(c), group=c.group)),
    "reduce to a rank outside": Case(
        lambda c: c.dist.reduce(_x(c), group_dst=c.size, group=c.group)
    ),
    "all_gather into another dtype": Case(
        lambda c: c.dist.all_gather(_list(c, "int32"), _x(c), group=c.group)
    ),
    "all_gather into too many": Case(
        lambda c: c.dist.all_gather(_list(c, length=c.size + 1), _x(c), group=c.group)
    ),
    "all_gather into an array": Case(lambda c: c.dist.all_gather(_x(c), _x(c), group=c.group)),
    "gather without a list": Case(
        lambda c: c.dist.gather(_x(c), None, group_dst=c.root, group=c.group), "root"
    ),
    "gather with a list elsewhere": Case(
        lambda c: c.dist.gather(_x(c), _list(c), group_dst=c.root, group=c.group), "others"
    ),
    "gather into another dtype": Case(
        lambda c: c.dist.gather(_x(c), _list(c, "int32"), group_dst=c.root, group=c.group), "root"
    ),
    "scatter without a list": Case(
        lambda c: c.dist.scatter(_x(c), None, group_src=c.root, group=c.group), "root"
    ),
    "scatter with a list elsewhere": Case(
        lambda c: c.dist.scatter(_x(c), _list(c), group_src=c.root, group=c.group), "others"
    ),
    "scatter of another dtype": Case(
        lambda c: c.dist.scatter(_x(c), _list(c, "int32"), group_src=c.root, group=c.group), "root"
    ),
    "reduce_scatter of another dtype": Case(
        lambda c: c.dist.reduce_scatter(_x(c), _list(c, "int32"), group=c.group)
    ),
    "all_to_all of two dtypes": Case(
        lambda c: c.dist.all_to_all(_list(c), _list(c, "int32"), group=c.group)
    ),
    "all_to_all_single of two dtypes": Case(
        lambda c: c.dist.all_to_all_single(
            _x(c, count=c.size), _x(c, "int32", c.size), group=c.group
        )
    ),
    "all_to_all_single of a list": Case(
        lambda c: c.dist.all_to_all_single(_list(c), _list(c), group=c.group)
    ),
    "send to nobody": Case(lambda c: c.dist.send(_x(c), group=c.group)),
    "send of a number": Case(lambda c: c.dist.send(2.5, _peer(c), group=c.group)),
    "send to both": Case(lambda c: c.dist.send(_x(c), dst=_peer(c), group_dst=0, group=c.group)),
    "recv into a list": Case(lambda c: c.dist.recv([0.0], _peer(c), group=c.group)),
    "isend of a list": Case(lambda c: c.dist.isend([2.5], _peer(c), group=c.group)),
    "batch of nothing": Case(lambda c: c.dist.batch_isend_irecv([])),
    "batch of numbers": Case(lambda c: c.dist.batch_isend_irecv([1, 2])),
    "P2POp of a collective": Case(lambda c: c.dist.P2POp(c.dist.broadcast, _x(c), 0)),
    "broadcast_object_list with both sources": Case(
        lambda c: c.dist.broadcast_object_list([1], src=c.members[0], group_src=0, group=c.group)
    ),
    "scatter_object_list into nothing": Case(
        lambda c: c.dist.scatter_object_list([], [1] * c.size, group_src=c.root, group=c.group)
    ),
    "gather_object without a list": Case(
        lambda c: c.dist.gather_object(1, None, group_dst=c.root, group=c.group), "root"
    ),
    "new_group with a rank outside": Case(lambda c: c.dist.new_group([0, 99])),
    "new_group with a rank twice": Case(lambda c: c.dist.new_group([0, 0])),
    "all_reduce by one outside the group": Case(
        lambda c: c.dist.all_reduce(_x(c), group=c.dist.GroupMember.NON_GROUP_MEMBER),
        raises=False,
    ),
}


def _peer(c: Context) -> int:
    """A member other than this rank; in a group of one, whoever comes first."""
    return c.members[(c.group_rank + 1) % c.size]
