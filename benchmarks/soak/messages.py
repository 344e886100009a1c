"""One step with messages between ranks, or with objects.

A recv from any source has a tag that no other message of its time has, so that it takes no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import distdbg as dist
from benchmarks.soak.draw import Array, Step, Wrong, check_equal
from benchmarks.soak.ops import Started

#: Between two steps with the same number modulo this, all ranks have met.
_OWN_TAGS: Final = 1 << 16


def _nothing() -> None:
    """For a rank that has no part in the step."""


def _ends(step: Step) -> tuple[int, int]:
    """Group ranks of sender and receiver; equal only in a group of one."""
    sender = step.draw.below(step.size)
    return sender, (sender + 1 + step.draw.below(max(1, step.size - 1))) % step.size


def _name(step: Step, end: str, rank: int) -> dict[str, int]:
    by_group = step.draw.chance(2)
    return {f"group_{end}": rank} if by_group else {end: step.ranks[rank]}


def message(step: Step) -> Started:
    sender, receiver = _ends(step)
    count = step.count()
    from_any = step.draw.chance(4)
    tag = 8 + step.number % _OWN_TAGS if from_any else step.draw.below(3)
    sends_async, receives_async = step.draw.chance(2), step.draw.chance(2)
    if sender == receiver or step.rank not in (sender, receiver):
        return None, _nothing
    if step.rank == sender:
        array = step.mine(count)
        send = dist.isend if sends_async else dist.send
        return send(array, group=step.group, tag=tag, **_name(step, "dst", receiver)), _nothing
    room = step.room(count)
    named = {} if from_any else _name(step, "src", sender)
    check = _message_check(step, room, sender)
    if receives_async:
        return dist.irecv(room, group=step.group, tag=tag, **named), check
    source = dist.recv(room, group=step.group, tag=tag, **named)
    if source != step.ranks[sender]:
        raise Wrong(f"step {step.number}: recv came from {source}, not {step.ranks[sender]}")
    return None, check


def _message_check(step: Step, room: Array, sender: int, block: int = 0) -> Callable[[], None]:
    return lambda: check_equal(step, "recv", room, step.brought(sender, len(room), block))


class Works:
    """Several works that are waited for as one."""

    def __init__(self, works: list[Any]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()


def batch(step: Step) -> Started:
    """Several messages between any ranks, each with a tag of its own, in one list per rank."""
    ops, checks = [], []
    for place in range(1 + step.draw.below(5)):
        sender, receiver = _ends(step)
        count = step.count() // 4
        if sender == receiver:
            continue
        if step.rank == sender:
            array = step.mine(count, place)
            ops.append(dist.P2POp(dist.isend, array, step.ranks[receiver], step.group, 3 + place))
        if step.rank == receiver:
            room = step.room(count)
            ops.append(dist.P2POp(dist.irecv, room, step.ranks[sender], step.group, 3 + place))
            checks.append(_message_check(step, room, sender, place))
    if not ops:
        return None, _nothing
    if step.rank % 2:  # the order within a list is each rank's own business
        ops.reverse()
    works = Works(dist.batch_isend_irecv(ops))

    def check() -> None:
        for each in checks:
            each()

    if step.is_async:
        return works, check
    works.wait()
    return None, check


def _object(step: Step, rank: int, place: int = 0) -> Any:
    words = "x" * ((step.number + 7 * rank + 31 * place) % 50)
    return {"step": step.number, "from": rank, "place": place, "words": [words, None, 0.5]}


def _check_objects(step: Step, what: str, got: object, expected: object) -> None:
    if got != expected:
        raise Wrong(f"step {step.number}: {what} on ranks {step.ranks}: {got!r}, not {expected!r}")


def all_gather_object(step: Step) -> Started:
    got: list[Any] = [None] * step.size
    dist.all_gather_object(got, _object(step, step.rank), group=step.group)
    expected = [_object(step, rank) for rank in range(step.size)]
    return None, lambda: _check_objects(step, "all_gather_object", got, expected)


def gather_object(step: Step) -> Started:
    root, named = step.root("dst")
    got: list[Any] | None = [None] * step.size if step.rank == root else None
    dist.gather_object(_object(step, step.rank), got, group=step.group, **named)
    if got is None:
        return None, _nothing
    expected = [_object(step, rank) for rank in range(step.size)]
    return None, lambda: _check_objects(step, "gather_object", got, expected)


def broadcast_object_list(step: Step) -> Started:
    root, named = step.root("src")
    count = 1 + step.draw.below(3)
    got = [_object(step, step.rank, place) for place in range(count)]
    dist.broadcast_object_list(got, group=step.group, **named)
    expected = [_object(step, root, place) for place in range(count)]
    return None, lambda: _check_objects(step, "broadcast_object_list", got, expected)


def scatter_object_list(step: Step) -> Started:
    root, named = step.root("src")
    sent = [_object(step, root, to) for to in range(step.size)] if step.rank == root else None
    got: list[Any] = [None]
    dist.scatter_object_list(got, sent, group=step.group, **named)
    expected = [_object(step, root, step.rank)]
    return None, lambda: _check_objects(step, "scatter_object_list", got, expected)


def object_message(step: Step) -> Started:
    sender, receiver = _ends(step)
    count, by_batch = 1 + step.draw.below(3), step.draw.chance(2)
    if sender == receiver or step.rank not in (sender, receiver):
        return None, _nothing
    expected = [_object(step, sender, place) for place in range(count)]
    if step.rank == sender:
        dist.send_object_list(expected, group=step.group, group_dst=receiver, use_batch=by_batch)
        return None, _nothing
    got: list[Any] = [None] * count
    dist.recv_object_list(got, group=step.group, group_src=sender, use_batch=by_batch)
    return None, lambda: _check_objects(step, "recv_object_list", got, expected)


MESSAGES: Final[tuple[Callable[[Step], Started], ...]] = (message, message, message, batch)
OBJECTS: Final[tuple[Callable[[Step], Started], ...]] = (
    all_gather_object,
    gather_object,
    broadcast_object_list,
    scatter_object_list,
    object_message,
)
