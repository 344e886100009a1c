"""empty and zeros: arrays in memory that the ranks of a host share, so that ops on them copy nothing.

The memory is this process's (native/core/shared_heap.hpp); other ranks map it when an op first needs it. An
array is like any other of NumPy: slices, views and `torch.from_numpy` work on the same memory, and it is
freed with the last of them. An op that any rank brings an ordinary array to goes the ordinary way.

Across hosts they are ordinary arrays; a process without other ranks on its host gets those at once.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from distdbg.check.latent import CodeLine, position_above
from distdbg.config import read_setting
from distdbg.errors import ConfigError, DistBackendError, UsageError
from distdbg.native import NativeError, list_shared_arrays, make_shared_array
from distdbg.native import shared_arrays as read_facts
from distdbg.ops.dtypes import FROM_NUMPY, Dtype, from_torch
from distdbg.ops.sites import UNKNOWN, shorten
from distdbg.record.durations import nbytes_text
from distdbg.runtime.arrays import torch_arrays
from distdbg.runtime.arrays.buffers import Array, as_array
from distdbg.runtime.arrays.memory_room import read_memory
from distdbg.runtime.process.world import current

Shape = int | Sequence[int]

#: Lines of the program that an error names.
_MAX_LINES = 4
#: The machine is not asked for what it has free before each small array.
_LARGE_NBYTES = 1 << 20
#: More than any machine has; twice as many addresses are reserved.
_MAX_LIMIT_NBYTES = 1 << 46
#: One rank's arrays take at most this part of what the machine has, and of what is free: a half.
_SHARE = 2


@dataclass(frozen=True, slots=True)
class SharedArrays:
    """What this process has of them."""

    #: Those that are alive, and their bytes, in whole pages.
    count: int
    nbytes: int
    #: The most bytes at any time.
    most_nbytes: int
    #: What DISTDBG_SHARED_NBYTES allows; 0 before the first of them.
    limit_nbytes: int
    #: How many ops of this process went on in place.
    ops: int
    #: By the lines of the program that made them: how many of them are alive, and their bytes.
    lines: dict[str, tuple[int, int]]


def empty(
    shape: Shape | None = None, dtype: npt.DTypeLike | None = None, *, like: Array = None
) -> Array:
    """Return an array in memory that the ranks of this host share, with no particular contents.

    Args:
        shape: An int or a sequence; that of `like` if not given.
        dtype: NumPy's, ml_dtypes' or torch's; that of `like`, else float64, if not given.
        like: An array whose shape, dtype and library (NumPy or torch) are meant where nothing else is said.

    Raises:
        UsageError: The rank would have more than DISTDBG_SHARED_NBYTES allows, or an argument is wrong.
        DistBackendError: The machine, or the cgroup, has not so much memory free.
    """
    return _make("empty", shape, dtype, like)


def zeros(
    shape: Shape | None = None, dtype: npt.DTypeLike | None = None, *, like: Array = None
) -> Array:
    """Return an array of zeros in memory that the ranks of this host share; see `empty`."""
    return _make("zeros", shape, dtype, like)


def shared_arrays() -> SharedArrays:
    """Return how many shared arrays of this rank are alive, their bytes, and which lines made them."""
    return SharedArrays(*read_facts(), _lines())


# The memory is the process's, whichever rank of it asks, and so are these.
#: The function and line of the program that made shared arrays; native code keeps the index with each array.
_spots: list[tuple[str, CodeLine | None]] = []
_tags: dict[tuple[str, CodeLine | None], int] = {}


def _make(name: str, shape: Shape | None, dtype: npt.DTypeLike | None, like: Array) -> Array:
    function = f"distdbg.{name}"
    try:
        extents = _extents(shape, like)
        kind = _dtype(dtype, like)
    except UsageError as error:
        raise error.named(function) from None
    nbytes = math.prod(extents) * kind.itemsize
    limit_nbytes = _limit_nbytes()
    if nbytes == 0 or limit_nbytes == 0 or _is_alone():
        flat = np.zeros(nbytes, np.uint8) if name == "zeros" else np.empty(nbytes, np.uint8)
    else:
        flat = _allocate(function, nbytes, limit_nbytes)
    if torch_arrays.is_tensor(like):
        return torch_arrays.from_bytes(flat, kind, extents)
    return flat.view(kind.to_numpy()).reshape(extents)


def _allocate(function: str, nbytes: int, limit_nbytes: int) -> npt.NDArray[np.uint8]:
    if nbytes >= _LARGE_NBYTES:
        memory = read_memory()
        if nbytes > memory.free:
            raise DistBackendError(
                f"{function} of {nbytes_text(nbytes)}: {memory.whose} has {nbytes_text(memory.free)} free",
                details=_details(),
                hint="make smaller arrays, or fewer; pages of shared arrays are taken at once",
            )
    position = position_above(3)
    line = (function, None if position is None else CodeLine(*position))
    tag = _tags.get(line)
    if tag is None:
        tag = _tags[line] = len(_spots)
        _spots.append(line)
    try:
        return make_shared_array(nbytes, limit_nbytes, tag)
    except NativeError as error:
        if error.fault != "usage":
            raise DistBackendError(
                f"{function} of {nbytes_text(nbytes)}: {error}", details=_details()
            ) from error
        _, has_nbytes, _, most_nbytes, _ = read_facts()
        raise UsageError(
            f"{function} of {nbytes_text(nbytes)}: this rank has {nbytes_text(has_nbytes)} of shared "
            f"arrays, of {nbytes_text(most_nbytes)} that it may have",
            details=_details(),
            hint="drop arrays that are not needed any more, or set DISTDBG_SHARED_NBYTES",
        ) from None


def _details() -> list[str]:
    """'distdbg.empty at train.py:9 (step), 6 times, 1.2 GiB', the most memory first."""
    lines = sorted(_lines().items(), key=lambda entry: -entry[1][1])
    reported = [
        f"{line}, {count} times, {nbytes_text(nbytes)}"
        if count > 1
        else f"{line}, {nbytes_text(nbytes)}"
        for line, (count, nbytes) in lines[:_MAX_LINES]
    ]
    if len(lines) > _MAX_LINES:
        reported.append(f"and {len(lines) - _MAX_LINES} more lines")
    return reported


def _lines() -> dict[str, tuple[int, int]]:
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    for tag, nbytes in list_shared_arrays():
        counts[tag] += 1
        sums[tag] += nbytes
    places = {tag: _spots[tag] for tag in counts}
    sites = {tag: UNKNOWN if place is None else str(place) for tag, (_, place) in places.items()}
    short = shorten(list(sites.values()))
    found: dict[str, tuple[int, int]] = {}
    for tag in counts:  # a line may have several calls
        line = f"{places[tag][0]} at {short[sites[tag]]}"
        count, nbytes = found.get(line, (0, 0))
        found[line] = count + counts[tag], nbytes + sums[tag]
    return found


def _limit_nbytes() -> int:
    limit = read_setting("DISTDBG_SHARED_NBYTES")
    if limit is None:
        return read_facts()[3] or read_memory().total // _SHARE
    if int(limit) > _MAX_LIMIT_NBYTES:
        raise ConfigError(
            f"the variable DISTDBG_SHARED_NBYTES={limit} is not valid; expected at most {_MAX_LIMIT_NBYTES}"
        )
    return int(limit)


def _is_alone() -> bool:
    """Whether no other rank is on this host, as far as is known: before init_process_group it is not."""
    world = current()
    return world.default is not None and world.ranks_here == 1


def _extents(shape: Shape | None, like: Array) -> tuple[int, ...]:
    if shape is None:
        if like is None:
            raise UsageError("a shape is needed, or an array that it is like")
        return tuple(int(extent) for extent in as_array(like, "like").shape)
    try:
        try:
            whole: tuple[Any, ...] = (operator.index(shape),)  # type: ignore[arg-type]
        except TypeError:
            whole = tuple(shape)  # type: ignore[arg-type]
        extents = tuple(int(np.asarray(extent).__index__()) for extent in whole)
    except TypeError:
        raise UsageError(f"the shape is {shape!r}; expected an int or a sequence of ints") from None
    if any(extent < 0 for extent in extents):
        raise UsageError(f"the shape is {extents}; no extent can be below 0")
    return extents


def _dtype(dtype: Any, like: Array) -> Dtype:
    if dtype is None:
        dtype = np.float64 if like is None else as_array(like, "like").dtype
    found = from_torch(dtype) if str(dtype).startswith("torch.") else None
    if found is None:
        try:
            found = FROM_NUMPY.get(np.dtype(dtype))
        except TypeError:
            found = None
    if found is None:
        known = ", ".join(each.label for each in Dtype)
        raise UsageError(
            f"the dtype is {dtype!r}, which cannot be communicated",
            details=[f"known dtypes: {known}"],
        )
    return found
