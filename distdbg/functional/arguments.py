"""Groups, reduce ops, dimensions and arrays as users give them to functional collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.reduce_op import ReduceOp
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.integers import to_int
from distdbg.runtime.arrays.buffers import as_array
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import GroupMember, resolve
from distdbg.runtime.mesh import DeviceMesh

#: A group; a mesh of one dimension; a mesh and one of its dimensions; None: the default group.
GroupLike: TypeAlias = ProcessGroup | DeviceMesh | tuple[DeviceMesh, int | str] | Any
#: A reduce op or its name.
OpLike: TypeAlias = ReduceOp | str

_OP_NAMES: Final = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


def group_of(what: str, group: GroupLike) -> ProcessGroup:
    """The group that is meant. UsageError where this rank is not in it: there is no result then."""
    if group is None or isinstance(group, ProcessGroup):
        found = resolve(group, what)
        assert found is not None  # only a rank outside of a group has none
        return found
    if isinstance(group, DeviceMesh):
        if group.ndim > 1:
            names = group.mesh_dim_names
            dim = f'"{names[0]}"' if names else "0"
            raise UsageError(
                f"{what}: group is a mesh of {group.ndim} dimensions, give one of them",
                hint=f"group=(mesh, {dim}), or of several group=mesh._flatten()",
            )
        return _named(what, group, None)
    if isinstance(group, tuple) and len(group) == 2 and isinstance(group[0], DeviceMesh):
        return _named(what, *group)
    if group == GroupMember.NON_GROUP_MEMBER:
        raise UsageError(
            f"{what}: this rank is not in the given group, so it gets no result",
            hint="call it on the members of the group only",
        )
    raise WrongTypeError(
        f"{what}: group must be a ProcessGroup, a DeviceMesh of one dimension, or a mesh and a "
        f"dimension, not {type(group).__name__}"
    )


def _named(what: str, mesh: DeviceMesh, dim: int | str | None) -> ProcessGroup:
    """The group along a dimension, with errors that name the op."""
    try:
        return mesh.get_group(dim)
    except UsageError as error:
        raise error.named(what) from error.__cause__


def reduce_op_of(what: str, op: OpLike) -> ReduceOp:
    """The op of that name, as torch's functional collectives take it: 'sum', 'avg', 'max' ..."""
    if isinstance(op, ReduceOp):
        return op
    if isinstance(op, str) and op.lower() in _OP_NAMES:
        found: ReduceOp = getattr(ReduceOp, op.upper())
        return found
    raise UsageError(f"{what}: op must be a ReduceOp or one of {', '.join(_OP_NAMES)}, got {op!r}")


def array_of(what: str, tensor: Array, name: str = "tensor") -> Array:
    """The array itself where it is NumPy's or torch's, else NumPy's over its memory."""
    try:
        return as_array(tensor, name)
    except UsageError as error:
        raise error.named(what) from error.__cause__


def arrays_of(what: str, tensors: Sequence[Array], count: int | None = None) -> list[Array]:
    """A list of arrays. UsageError: none, or not `count`."""
    if not isinstance(tensors, (list, tuple)):
        raise WrongTypeError(
            f"{what}: tensors must be a list of arrays, not {type(tensors).__name__}"
        )
    if count is not None and len(tensors) != count:
        raise UsageError(
            f"{what}: tensors has {len(tensors)} arrays, expected {count}, one for each rank"
        )
    if not tensors:
        raise UsageError(f"{what}: tensors is empty")
    return [array_of(what, each, f"tensors[{at}]") for at, each in enumerate(tensors)]


def dim_of(what: str, name: str, dim: int, array: Array) -> int:
    """The number of a dimension from 0 on; a scalar counts as one of one element."""
    if isinstance(dim, ProcessGroup):
        raise WrongTypeError(
            f"{what}: {name} must be an int, got a group",
            hint="give group=...; the form with lists, as in torch.distributed.nn.functional, is "
            f"{what}_list",
        )
    at, ndim = to_int(what, name, dim), max(len(array.shape), 1)
    if not -ndim <= at < ndim:
        raise UsageError(f"{what}: {name}={at} is not a dimension of an array of {ndim}")
    return at % ndim


def check_alike(what: str, arrays: Sequence[Array]) -> None:
    """UsageError when the blocks differ in shape: the shapes of what comes back would not be known."""
    first = tuple(arrays[0].shape)
    for at, array in enumerate(arrays):
        if tuple(array.shape) != first:
            raise UsageError(
                f"{what}: arrays of one shape are needed, got {list(first)} and {list(array.shape)}"
                f" (tensors[{at}])",
                hint="all_to_all with split sizes exchanges parts of different lengths",
            )
