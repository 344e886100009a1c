"""Point to point: send, recv, their asynchronous forms, and batches of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from distdbg.check.latent import line_above
from distdbg.errors import UsageError, WrongTypeError
from distdbg.native import NativeError
from distdbg.ops.call import ANY_SOURCE
from distdbg.runtime.api import calls
from distdbg.runtime.api.arguments import Array
from distdbg.runtime.api.known_calls import Likeness, known_message, run_known
from distdbg.runtime.api.options import Timeout, seconds_or_none
from distdbg.runtime.groups.coalesced import together
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.group_argument import Group, resolve, to_group_rank
from distdbg.runtime.handles.work import Work


def send(
    tensor: Array,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    timeout: Timeout = None,
) -> None:
    """Send `tensor` to one rank; afterwards it may be changed."""
    known: Likeness
    try:
        known = known_message("send", group, timeout, dst, group_dst, tag, tensor)
        if known is None:
            return
    except NativeError as error:
        known = error
    pg = resolve(group, "send")
    if pg is not None:
        peer = to_group_rank(pg, "send", "dst", dst, group_dst)
        call = calls.send(pg.size(), tensor, peer, tag, seconds_or_none(timeout))
        run_known(pg, call, known, (tensor,))


def recv(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> int:
    """Receive into `tensor` from one rank, or from any; return the sender's global rank."""
    known: Likeness
    try:
        known = known_message("recv", group, timeout, src, group_src, tag, tensor)
        if type(known) is int:
            return known
    except NativeError as error:
        known = error
    pg = resolve(group, "recv")
    if pg is None:
        return -1
    peer = _source(pg, "recv", src, group_src)
    if peer < 0 and pg.world.unwaited is not None:
        latent = pg.world.unwaited.latent
        if latent.is_on:
            latent.note_dropped_source(line_above(2))
    call = calls.recv(pg.size(), tensor, peer, tag, seconds_or_none(timeout))
    source = run_known(pg, call, known, (tensor,), None, pg.ranks[peer])
    source = peer if source < 0 else source
    return pg.ranks[source] if source >= 0 else -1


def isend(
    tensor: Array,
    dst: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Start to send; `tensor` must not be changed before the Work has ended."""
    pg = resolve(group, "isend")
    if pg is None:
        return None
    peer = to_group_rank(pg, "isend", "dst", dst, group_dst)
    return pg.run(calls.send(pg.size(), tensor, peer, tag, seconds_or_none(timeout)), True)


def irecv(
    tensor: Array,
    src: int | None = None,
    group: Group = None,
    tag: int = 0,
    group_src: int | None = None,
    timeout: Timeout = None,
) -> Work | None:
    """Start to receive from one rank, or from any; `tensor` is valid when the Work has ended."""
    pg = resolve(group, "irecv")
    if pg is None:
        return None
    peer = _source(pg, "irecv", src, group_src)
    return pg.run(calls.recv(pg.size(), tensor, peer, tag, seconds_or_none(timeout)), True)


class P2POp:
    """One send or receive of a batch: P2POp(isend, tensor, peer)."""

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Array,
        peer: int | None = None,
        group: Group = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op is not isend and op is not irecv:
            raise WrongTypeError("P2POp: op must be isend or irecv")
        self.op = op
        self.tensor = tensor
        self.tag = tag
        pg = resolve(group, "P2POp")
        self.group: Group = pg if pg is not None else group
        if pg is None:
            self.peer = self.group_peer = -1
        else:
            self.group_peer = to_group_rank(pg, "P2POp", "peer", peer, group_peer)
            self.peer = pg.ranks[self.group_peer]

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} peer={self.peer} tag={self.tag})"


def batch_isend_irecv(p2p_op_list: list[P2POp], timeout: Timeout = None) -> list[Work]:
    """Start all sends and receives of a list; their order does not matter between peers."""
    _check_batch(p2p_op_list)
    limit_s = seconds_or_none(timeout)
    works: list[tuple[int, Work]] = []
    pg = resolve(p2p_op_list[0].group, "batch_isend_irecv")
    if pg is None:
        return []
    with together(pg):
        # Receives first: a send to a rank that waits for us can then always find its place.
        for wanted in (irecv, isend):
            for index, item in enumerate(p2p_op_list):
                if item.op is wanted:
                    make = calls.recv if wanted is irecv else calls.send
                    call = make(pg.size(), item.tensor, item.group_peer, item.tag, limit_s)
                    works.append((index, pg.run(call, True)))
    return [work for _, work in sorted(works, key=lambda entry: entry[0])]


def _check_batch(items: Sequence[P2POp]) -> None:
    if not isinstance(items, (list, tuple)) or not all(isinstance(item, P2POp) for item in items):
        raise WrongTypeError("batch_isend_irecv expects a list of P2POp")
    if not items:
        raise UsageError("batch_isend_irecv: the list is empty")
    if any(item.group is not items[0].group for item in items):
        raise UsageError("batch_isend_irecv: all ops of a batch must be on one group")


def _source(pg: ProcessGroup, what: str, src: int | None, group_src: int | None) -> int:
    if src is None and group_src is None:
        return ANY_SOURCE
    return to_group_rank(pg, what, "src", src, group_src)
