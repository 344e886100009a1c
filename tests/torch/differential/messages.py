"""Point to point steps, and the object forms.

A step has one sender and one receiver (or several such pairs in a batch), both members of its
group; in a group of one nothing is sent. Messages between two ranks under one tag arrive in order,
so several may be under way; a recv from any source has a tag of its own, so that it takes no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from differential.context import Context


class Works:
    """Several works that are waited for as one."""

    def __init__(self, works: list[Any]) -> None:
        self.works = works

    def wait(self) -> bool:
        waited = [work.wait() for work in self.works]
        return all(waited)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self.works)


def _ends(c: Context, pair: dict[str, Any]) -> tuple[int, int]:
    """Group ranks of sender and receiver; equal only in a group of one."""
    sender = pair["source"] % c.size
    return sender, (sender + 1 + (pair["hops"] - 1) % max(1, c.size - 1)) % c.size


def _name(c: Context, end: str, group_rank: int) -> dict[str, int]:
    if c.step["form"] == "group":
        return {f"group_{end}": group_rank}
    return {end: c.members[group_rank]}


def message(c: Context) -> Any:
    step = c.step
    sender, receiver = _ends(c, step)
    tag = 100 + c.index if step["any_source"] else step["tag"]
    if sender == receiver or c.group_rank not in (sender, receiver):
        return None
    if c.group_rank == sender:
        call = c.dist.isend if step["send_async"] else c.dist.send
        x = c.input(step["shape"])
        return call(x, group=c.group, tag=tag, **_name(c, "dst", receiver))
    call = c.dist.irecv if step["recv_async"] else c.dist.recv
    source = {} if step["any_source"] else _name(c, "src", sender)
    return call(c.output(step["shape"]), group=c.group, tag=tag, **source)


def batch(c: Context) -> Any:
    ops = []
    for place, pair in enumerate(c.step["messages"]):
        sender, receiver = _ends(c, pair)
        if sender == receiver:
            continue
        if c.group_rank == sender:
            x = c.input(pair["shape"], place)
            ops.append((pair["late"], place, c.dist.isend, x, receiver))
        if c.group_rank == receiver:
            ops.append((pair["late"], place, c.dist.irecv, c.output(pair["shape"]), sender))
    if not ops:
        return None
    # Sender and receiver sort alike or not at all: every message has a tag of its own.
    ops.sort(key=lambda op: (op[0], op[1]) if c.group_rank % 2 else (op[1], op[0]))
    made = []
    for _, place, call, array, peer in ops:
        if c.step["form"] == "group":
            made.append(c.dist.P2POp(call, array, group=c.group, tag=10 + place, group_peer=peer))
        else:
            made.append(c.dist.P2POp(call, array, c.members[peer], c.group, 10 + place))
    return Works(c.dist.batch_isend_irecv(made))


def objects(c: Context) -> Any:
    """The result is the received objects themselves; JSON carries them back."""
    mine = [[c.group_rank, item] for item in c.step["objects"]]
    empty: list[Any] = [None] * c.size
    match c.step["of"]:
        case "all_gather":
            c.dist.all_gather_object(empty, mine, group=c.group)
            return {"objects": empty}
        case "gather":
            received = empty if c.is_root else None
            c.dist.gather_object(mine, received, group=c.group, **c.rooted("dst"))
            return {"objects": received}
        case "broadcast":
            c.dist.broadcast_object_list(mine, group=c.group, **c.rooted("src"))
            return {"objects": mine}
        case "scatter":
            sent = [[to, mine] for to in range(c.size)] if c.is_root else None
            out: list[Any] = [None]
            c.dist.scatter_object_list(out, sent, group=c.group, **c.rooted("src"))
            return {"objects": out}
        case _:
            receiver = (c.root + 1) % c.size
            if receiver == c.root or c.group_rank not in (c.root, receiver):
                return None
            if c.is_root:
                c.dist.send_object_list(mine, group=c.group, group_dst=receiver)
                return None
            taken: list[Any] = [None] * len(mine)
            source = c.dist.recv_object_list(taken, group=c.group, group_src=c.root)
            return {"objects": taken, "source": source}


MESSAGES: dict[str, Callable[[Context], Any]] = {
    "message": message,
    "batch": batch,
    "objects": objects,
}
