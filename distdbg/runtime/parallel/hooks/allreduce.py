"""The hooks with one all_reduce: of the gradients as they are, or with half of the bits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from distdbg.errors import UsageError
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.api.collectives import all_reduce
from distdbg.runtime.arrays.torch_arrays import is_tensor
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, resolve
from distdbg.runtime.parallel.hooks.deferred import Later
from distdbg.runtime.parallel.reducer.arrays import Array
from distdbg.runtime.parallel.reducer.bucket import GradBucket


def group_of(state: Group) -> ProcessGroup:
    """The group that a hook was given, or the default one."""
    group = resolve(state, "a comm hook")
    if group is None:
        raise UsageError("a comm hook was given a group that this rank is not in")
    return group


def cast(array: Array, dtype: Dtype) -> Array:
    """A copy of another dtype."""
    if is_tensor(array):
        return array.to(getattr(sys.modules["torch"], dtype.label), copy=True)
    return array.astype(dtype.to_numpy())


def assign(into: Array, values: Array) -> Array:
    """Copy values into an array of any dtype, and return that."""
    if is_tensor(into):
        into.copy_(values)
    else:
        into[...] = values
    return into


def sum_later(group: ProcessGroup, array: Array, finish: Callable[[], Array]) -> Later:
    """Start an all_reduce; whoever waits gets what `finish` makes of it."""
    work = all_reduce(array, group=group, async_op=True)
    assert work is not None  # it is asynchronous

    def make() -> Array:
        work.wait()
        return finish()

    return Later(make)


def allreduce_hook(process_group: Group, bucket: GradBucket) -> Later:
    """Average by one all_reduce, as without a hook."""
    group = group_of(process_group)
    buffer = bucket.buffer()
    buffer /= group.size()
    return sum_later(group, buffer, lambda: buffer)


def fp16_compress_hook(process_group: Group, bucket: GradBucket) -> Later:
    """Average as float16."""
    return _compress(process_group, bucket, Dtype.float16)


def bf16_compress_hook(process_group: Group, bucket: GradBucket) -> Later:
    """Average as bfloat16."""
    return _compress(process_group, bucket, Dtype.bfloat16)


def _compress(process_group: Group, bucket: GradBucket, dtype: Dtype) -> Later:
    group = group_of(process_group)
    buffer = bucket.buffer()
    small = cast(buffer, dtype)
    small /= small.dtype.type(group.size()) if not is_tensor(small) else group.size()
    return sum_later(group, small, lambda: assign(buffer, small))


def noop_hook(_: Any, bucket: GradBucket) -> Later:
    """Leave each rank its own gradients: shows what a step costs without communication."""
    return Later(bucket.buffer)
