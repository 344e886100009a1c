"""The mismatch message of torch's wrapper, and the parts of it that are true.

    Rank 0 is running collective: CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, ...),
    but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=0OpType=SCATTER).

When the two fingerprints have different lengths, torch reads the length of the peer's as the number of an op:
rank 1 called no scatter; its fingerprint has 8 numbers, which is an array of 2 dimensions. Sequence number 0
without a shape gives it away. What a rank reports about itself is true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from distdbg.diagnose.load.torch_names import kind_of

_FINGERPRINT: Final = re.compile(
    r"Rank (\d{1,7}) is running collective: CollectiveFingerPrint\("
    r"SequenceNumber=(\d{1,18})(?:, )?OpType=([A-Za-z_0-9]{1,40})"
    r"(?:, TensorShape=\[([\d, ]{0,200})\])?(?:, TensorDtypes=([A-Za-z0-9]{1,20}))?"
)
#: By number, as torch counts its ops.
_OP_TYPES: Final = (
    "BROADCAST", "ALLREDUCE", "ALLREDUCE_COALESCED", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE",
    "ALLGATHER_COALESCED", "GATHER", "SCATTER", "REDUCE_SCATTER", "ALLTOALL_BASE", "ALLTOALL", "SEND",
    "RECV", "RECVANYSOURCE", "BARRIER", "_REDUCE_SCATTER_BASE", "COALESCED", "_ALLREDUCE_SPARSE",
    "REDUCE_SCATTER_TENSOR_COALESCED",
)  # fmt: skip
#: Op, seq and number of arrays; each array adds its dtype, device, number of dimensions, and sizes.
_BARE_LENGTH: Final = 3
_ARRAY_LENGTH: Final = 6


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """What one rank is said to have called."""

    rank: int
    kind: str
    """'' when the message does not know."""
    seq: int
    shape: str
    dtype: str
    dimensions: int | None = None
    """Of an array whose op and sizes the message lost; -1: no array at all."""

    @property
    def what(self) -> str:
        """'all_reduce of float[4]'."""
        if self.kind:
            dtype = self.dtype.lower()
            array = f" of {dtype}[{self.shape}]" if self.shape or dtype else ""
            return f"{self.kind}{array}"
        if self.dimensions == -1:
            return "an op without an array, such as a barrier"
        return f"an op on an array of {self.dimensions} dimensions"


def read_sides(text: str) -> list[LoggedCall]:
    """Both sides of the message; [] for what is none."""
    return [_side(*found) for found in _FINGERPRINT.findall(text)]


def _side(rank: str, seq: str, op: str, shape: str, dtype: str) -> LoggedCall:
    if int(seq) == 0 and not shape and not dtype and op in _OP_TYPES:
        length = _OP_TYPES.index(op)
        if length == _BARE_LENGTH:
            return LoggedCall(int(rank), "", 0, "", "", dimensions=-1)
        if length >= _ARRAY_LENGTH:
            return LoggedCall(int(rank), "", 0, "", "", dimensions=length - _ARRAY_LENGTH)
    return LoggedCall(int(rank), kind_of(op), int(seq), shape.strip(), dtype)
