"""Joins the entries of ops that torch wrote as several (coalesced batches).

A coalesced batch is its parts, then an entry named 'coalesced' that alone knows whether the batch has
ended. Parts that are collectives share one seq: they become one op. Parts that are messages stay messages,
and take the state of the end of their batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distdbg.diagnose.load.torch_dump import Entry, integer
from distdbg.diagnose.load.torch_groups import group_words
from distdbg.diagnose.load.torch_names import OpName, read_op_name


@dataclass(slots=True)
class TorchOp:
    """One op of one rank."""

    name: OpName
    parts: list[Entry]
    state: Entry
    """The entry whose state is that of the op."""

    @property
    def seq(self) -> int:
        entry = self.parts[0]
        if self.name.is_message:
            return integer(entry.get("p2p_seq_id", entry.get("seq_id")), 0)
        return integer(entry.get("collective_seq_id", entry.get("seq_id")), 0)


def calls(entries: Sequence[Entry], names: dict[str, OpName]) -> Iterator[TorchOp]:
    """The ops in the order in which they were called. `names` keeps what was read before."""
    collectives: dict[tuple[str, int], TorchOp] = {}
    batches: dict[tuple[str, int], list[TorchOp]] = {}
    found: list[TorchOp] = []
    for entry in entries:
        name = _name(entry, names)
        group, _ = group_words(entry)
        if name.is_message:
            call = TorchOp(name, [entry], entry)
            batches.setdefault((group, call.seq), []).append(call)
            found.append(call)
            continue
        if name.is_batch_end and entry.get("is_p2p") is True:
            sent = batches.pop((group, integer(entry.get("p2p_seq_id"), 0)), [])
            for call in sent:
                call.state = entry
            continue
        key = group, integer(entry.get("collective_seq_id", entry.get("seq_id")), 0)
        earlier = collectives.get(key)
        if earlier is None:
            if (
                name.is_batch_end
                and name.kind == "coalesced"
                and _ends_messages(batches, group, entry)
            ):
                continue
            collectives[key] = call = TorchOp(name, [entry], entry)
            found.append(call)
        else:
            _add(earlier, name, entry)
    yield from found


def _add(call: TorchOp, name: OpName, entry: Entry) -> None:
    if name.is_batch_end:
        call.state = entry
        if name.number < 128:
            call.name = name  # 'ALLGATHER_coalesced' of some broadcasts is an all_gather
    else:
        call.parts.append(entry)
        if call.state is call.parts[-2]:
            call.state = entry


def _ends_messages(batches: dict[tuple[str, int], list[TorchOp]], group: str, entry: Entry) -> bool:
    """Older versions do not say of the end of a batch that it was one of messages."""
    sent = batches.pop((group, integer(entry.get("p2p_seq_id"), 0)), None)
    for call in sent or ():
        call.state = entry
    return sent is not None


def _name(entry: Entry, names: dict[str, OpName]) -> OpName:
    given = entry.get("profiling_name")
    word = given[:256] if isinstance(given, str) else ""
    name = names.get(word)
    if name is None:
        name = names[word] = read_op_name(word)
    return name
