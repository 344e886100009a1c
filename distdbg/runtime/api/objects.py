"""Python objects instead of arrays: sizes first, then the pickled bytes, as ordinary ops.

Unpickling runs code, so it is done only with bytes that came through a group: its peers have proven
that they belong to the job before the group existed. Nothing else is ever unpickled here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from distdbg.errors import UsageError, WrongTypeError
from distdbg.ops.call import Call, Variant
from distdbg.runtime.api import calls
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.api.p2p import P2POp, batch_isend_irecv, irecv, isend
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, resolve, to_group_rank
from distdbg.runtime.process.world import current

Bytes = npt.NDArray[np.uint8]
Sizes = npt.NDArray[np.int64]


def all_gather_object(
    object_list: list[Any], obj: Any, group: Group = None, timeout: Timeout = None
) -> None:
    """Collect one object of each rank in `object_list`, by group rank."""
    pg = resolve(group, "all_gather_object")
    if pg is None:
        return
    deadline = _deadline_after(timeout)
    _check_length("all_gather_object", "object_list", object_list, pg.size())
    data = _to_bytes("all_gather_object", obj)
    sizes = _gather_sizes(pg, data, Variant.ALL_GATHER_OBJECT, deadline)
    widest = int(sizes.max())
    gathered = np.empty((pg.size(), widest), np.uint8)
    padded = _padded(data, widest)
    call = calls.all_gather_single(pg.size(), pg.rank(), gathered, padded, None, "")
    _run(pg, call, Variant.ALL_GATHER_OBJECT, deadline)
    object_list[:] = [
        _from_bytes("all_gather_object", gathered[r, : sizes[r]], pg.ranks[r])
        for r in range(pg.size())
    ]


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Group = None,
    group_dst: int | None = None,
    timeout: Timeout = None,
) -> None:
    """Collect one object of each rank in `object_gather_list` of rank `dst` (0 if not given)."""
    pg = resolve(group, "gather_object")
    if pg is None:
        return
    deadline = _deadline_after(timeout)
    root = to_group_rank(pg, "gather_object", "dst", dst, group_dst, default=0)
    if pg.rank() == root:
        _check_length("gather_object", "object_gather_list", object_gather_list, pg.size())
    elif object_gather_list:
        raise UsageError("gather_object: object_gather_list was given, but this is not the root")
    data = _to_bytes("gather_object", obj)
    sizes = _gather_sizes(pg, data, Variant.GATHER_OBJECT, deadline)
    widest = int(sizes.max())
    blocks: list[Bytes] | None = None
    if pg.rank() == root:
        blocks = list(np.empty((pg.size(), widest), np.uint8))
    call = calls.gather(pg.size(), pg.rank(), _padded(data, widest), blocks, root)
    _run(pg, call, Variant.GATHER_OBJECT, deadline)
    if blocks is not None and object_gather_list is not None:
        object_gather_list[:] = [
            _from_bytes("gather_object", block[:nbytes], rank)
            for block, nbytes, rank in zip(blocks, sizes, pg.ranks, strict=True)
        ]


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: object = None,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> None:
    """Replace the objects of the list by those of rank `src` (0 if not given)."""
    pg = resolve(group, "broadcast_object_list")
    if pg is None:
        return
    deadline = _deadline_after(timeout)
    root = to_group_rank(pg, "broadcast_object_list", "src", src, group_src, default=0)
    _check_objects("broadcast_object_list", object_list)
    is_root = pg.rank() == root
    parts = [_to_bytes("broadcast_object_list", item) for item in object_list] if is_root else []
    sizes = _sizes(parts) if is_root else np.empty(len(object_list), np.int64)
    _run(pg, calls.broadcast(pg.size(), sizes, root), Variant.BROADCAST_OBJECT_LIST, deadline)
    data = np.concatenate(parts) if is_root else np.empty(int(sizes.sum()), np.uint8)
    _run(pg, calls.broadcast(pg.size(), data, root), Variant.BROADCAST_OBJECT_LIST, deadline)
    if not is_root:
        object_list[:] = _cut("broadcast_object_list", data, sizes, pg.ranks[root])


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Group = None,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> None:
    """Put object r of rank `src`'s list (0 if not given) at place 0 of rank r's output list."""
    pg = resolve(group, "scatter_object_list")
    if pg is None:
        return
    deadline = _deadline_after(timeout)
    root = to_group_rank(pg, "scatter_object_list", "src", src, group_src, default=0)
    _check_objects("scatter_object_list", scatter_object_output_list)
    size, rank = pg.size(), pg.rank()
    widths = np.zeros(size, np.int64)
    parts: list[Bytes] = []
    if rank == root:
        _check_length(
            "scatter_object_list", "scatter_object_input_list", scatter_object_input_list, size
        )
        parts = [_to_bytes("scatter_object_list", item) for item in scatter_object_input_list or ()]
        widths = _sizes(parts)
    _run(pg, calls.broadcast(size, widths, root), Variant.SCATTER_OBJECT_LIST, deadline)
    widest = int(widths.max())
    mine = np.empty(widest, np.uint8)
    blocks = [_padded(part, widest) for part in parts] if rank == root else None
    _run(pg, calls.scatter(size, rank, mine, blocks, root), Variant.SCATTER_OBJECT_LIST, deadline)
    scatter_object_output_list[0] = _from_bytes(
        "scatter_object_list", mine[: widths[rank]], pg.ranks[root]
    )


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Group = None,
    device: object = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    timeout: Timeout = None,
) -> None:
    """Send the objects of a list to one rank."""
    pg = resolve(group, "send_object_list")
    if pg is None:
        return
    deadline = _deadline_after(timeout)
    peer = to_group_rank(pg, "send_object_list", "dst", dst, group_dst)
    _check_objects("send_object_list", object_list)
    parts = [_to_bytes("send_object_list", item) for item in object_list]
    for array in (_sizes(parts), np.concatenate(parts)):
        if use_batch:
            batch = [P2POp(isend, array, group=pg, group_peer=peer)]
            batch_isend_irecv(batch, _left_s(deadline))[0].wait()
        else:
            call = calls.send(pg.size(), array, peer, 0)
            call.name = "send_object_list"
            call.timeout_s = _left_s(deadline)
            pg.run(call)


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Group = None,
    device: object = None,
    group_src: int | None = None,
    use_batch: bool = False,
    timeout: Timeout = None,
) -> int:
    """Replace the objects of the list by received ones; return the sender's global rank."""
    pg = resolve(group, "recv_object_list")
    if pg is None:
        return -1
    deadline = _deadline_after(timeout)
    _check_objects("recv_object_list", object_list)
    peer = -1
    if src is not None or group_src is not None:
        peer = to_group_rank(pg, "recv_object_list", "src", src, group_src)
    elif use_batch:
        raise UsageError("recv_object_list: use_batch needs src or group_src")
    sizes = np.empty(len(object_list), np.int64)
    peer = _receive(pg, sizes, peer, use_batch, deadline)
    data = np.empty(int(sizes.sum()), np.uint8)
    _receive(pg, data, peer, use_batch, deadline)
    object_list[:] = _cut("recv_object_list", data, sizes, pg.ranks[peer])
    return pg.ranks[peer]


def _receive(
    pg: ProcessGroup, array: Sizes | Bytes, peer: int, use_batch: bool, deadline: float | None
) -> int:
    if use_batch:
        batch = [P2POp(irecv, array, group=pg, group_peer=peer)]
        batch_isend_irecv(batch, _left_s(deadline))[0].wait()
        return peer
    call = calls.recv(pg.size(), array, peer, 0)
    call.name = "recv_object_list"
    call.timeout_s = _left_s(deadline)
    source = pg.run(call)
    return source if source >= 0 else peer


def _gather_sizes(pg: ProcessGroup, data: Bytes, form: Variant, deadline: float | None) -> Sizes:
    sizes = np.empty(pg.size(), np.int64)
    call = calls.all_gather_single(pg.size(), pg.rank(), sizes, _sizes([data]), None, "")
    _run(pg, call, form, deadline)
    return sizes


def _run(pg: ProcessGroup, call: Call, form: Variant, deadline: float | None) -> None:
    """Run one of the ops that a function is made of, under the function's name."""
    call.name = form.label
    call.add_extra(form)
    call.timeout_s = _left_s(deadline)
    pg.run(call)


def _deadline_after(timeout: Timeout) -> float | None:
    """One for all ops that a function is made of; None: each has the group's limit."""
    limit_s = seconds_or_none(timeout)
    return None if limit_s is None else current().control.now() + limit_s


def _left_s(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - current().control.now(), 0.0)


def _to_bytes(what: str, obj: Any) -> Bytes:
    try:
        pickled = pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # whatever the object's own methods raise
        raise UsageError(
            f"{what}: an object of type {type(obj).__name__} cannot be pickled: {error}"
        ) from error
    return np.frombuffer(bytearray(pickled), np.uint8)


class _Unpickler(pickle.Unpickler):
    """Remembers what it has met last: of what an error comes from, Python's own text may say nothing."""

    last = ""

    def find_class(self, module: str, name: str, /) -> Any:
        self.last = f"{module}.{name}"
        return super().find_class(module, name)


def _from_bytes(what: str, data: Bytes, sender: int) -> Any:
    """`sender`: the global rank whose object it is."""
    reader = _Unpickler(io.BytesIO(data.tobytes()))
    try:
        return reader.load()
    except Exception as error:  # whatever the object's own methods raise
        # It stays what it is, for programs that catch it.
        last = f" ({reader.last})" if reader.last else ""
        error.add_note(f"{what}: the object of rank {sender} cannot be unpickled{last}")
        if isinstance(error, TypeError) and "__init__()" in str(error):
            error.add_note(
                "hint: pickle makes an exception from its `args`: give super().__init__() all of them"
            )
        raise


def _cut(what: str, data: Bytes, sizes: Sizes, sender: int) -> list[Any]:
    ends = np.cumsum(sizes)
    return [
        _from_bytes(what, data[end - nbytes : end], sender)
        for end, nbytes in zip(ends, sizes, strict=True)
    ]


def _sizes(parts: Sequence[Bytes]) -> Sizes:
    return np.array([len(part) for part in parts], np.int64)


def _padded(data: Bytes, nbytes: int) -> Bytes:
    padded = np.zeros(nbytes, np.uint8)
    padded[: len(data)] = data
    return padded


def _check_length(what: str, argument: str, items: object, size: int) -> None:
    if not isinstance(items, list) or len(items) != size:
        got = f"{len(items)} places" if isinstance(items, list) else type(items).__name__
        wrong = UsageError if isinstance(items, list) else WrongTypeError
        raise wrong(f"{what}: {argument} must be a list of {size} places, got {got}")


def _check_objects(what: str, items: object) -> None:
    if not isinstance(items, list) or not items:
        wrong = UsageError if isinstance(items, list) else WrongTypeError
        raise wrong(f"{what}: the list must have at least one object")
