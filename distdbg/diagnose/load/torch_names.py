"""Torch's names of ops and files, translated into ours.

'nccl:_all_gather_base'   all_gather, called _all_gather_base, by the backend nccl
'nccl:send 1->2'          send, from group rank 1 to group rank 2
'ucc:my_own'              a kind without a number; its name is kept
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.ops import OTHER_KIND
from distdbg.record.entries import KIND_LABELS

#: Names of a kind, without what `_plain_name` takes off.
_KINDS: Final = {
    "allreduce": "all_reduce",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_v": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "allgather_base": "all_gather",
    "allgather_into_tensor": "all_gather",
    "broadcast_oop": "broadcast",
    "reduce_oop": "reduce",
    "reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_v": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "all_to_all_base": "all_to_all",
    "recvanysource": "recv",
    "recv_any_source": "recv",
}
_MESSAGE: Final = re.compile(r"(send|recv) (\d{1,7})(->|<-)(\d{1,7})")
#: Ends a batch: 'coalesced', 'ALLGATHER_coalesced'.
_BATCH_END: Final = "coalesced"

_RANK_WORD: Final = re.compile(r"rank[_\-.]?(\d{1,7})(?!\d)", re.IGNORECASE)
_LAST_NUMBER: Final = re.compile(r"(?<!\d)(\d{1,7})(?:\.[A-Za-z]{1,8}){0,2}$")


@dataclass(frozen=True, slots=True)
class OpName:
    """A `profiling_name`."""

    backend: str
    name: str
    """As torch has it, without the backend: '_all_gather_base', 'send'."""
    kind: str
    number: int
    """The number of the kind; OTHER_KIND."""
    is_batch_end: bool = False
    from_group_rank: int | None = None
    to_group_rank: int | None = None

    @property
    def is_message(self) -> bool:
        return self.kind in ("send", "recv")


def read_op_name(text: str) -> OpName:
    """Any text is a name of something."""
    backend, colon, name = text.partition(":")
    if not colon:
        backend, name = "", text
    message = _MESSAGE.fullmatch(name)
    if message:
        kind, one, arrow, other = message.groups()
        source, target = (one, other) if arrow == "->" else (other, one)
        return OpName(
            backend,
            kind,
            kind,
            KIND_LABELS.index(kind),
            from_group_rank=int(source),
            to_group_rank=int(target),
        )
    plain = _plain_name(name)
    kind = _KINDS.get(plain, plain) or "an op"
    number = KIND_LABELS.index(kind) if kind in KIND_LABELS else OTHER_KIND
    return OpName(backend, name, kind, number, is_batch_end=_is_batch_end(name))


def kind_of(name: str) -> str:
    """Our word for an op of NCCL's or torch's logs: 'ALLREDUCE', 'AllReduce', '_ALLGATHER_BASE'."""
    plain = _plain_name(name)
    if plain in _KINDS or plain in KIND_LABELS:
        return _KINDS.get(plain, plain)
    joined = plain.replace("_", "")
    for label in KIND_LABELS:
        if joined == label.replace("_", ""):
            return label
    return _KINDS.get(joined, plain)


def _plain_name(name: str) -> str:
    plain = name[:64].lower().strip().lstrip("_")
    for end in ("_coalesced", "_sparse"):
        plain = plain.removesuffix(end)
    return plain


def _is_batch_end(name: str) -> bool:
    # 'all_gather_into_tensor_coalesced' is an op of its own; the ends are in capitals, or bare.
    head, _, tail = name.rpartition("_")
    return name == _BATCH_END or (tail == _BATCH_END and head.isupper())


def rank_of_file(name: str) -> int | None:
    """The rank that the name of a dump ends in; None when it has none.

    'comm_lib_trace_rank_3', 'nccl_trace_rank_n01.cluster_3', 'trace_rank_3.node17.json' are all of rank 3.
    """
    named: list[str] = _RANK_WORD.findall(name)
    if named:
        return int(named[-1])
    last = _LAST_NUMBER.search(name)
    return int(last[1]) if last else None
