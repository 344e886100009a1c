"""What a rank wrote of an error or a finding, as one of a few words: the label `check`. Pure.

mismatch        ranks called different things        rank_left    one left while others waited for it
nonfinite       NaN or Inf in an input               peer_lost    one is gone
buffer_changed  an array changed while an op had it  timeout      an op did not end in time
diverged        what must be equal is not            aborted      somebody ended the job
suspicion       noticed, and not forbidden           other        any other error of an op

Latent errors (leaked work, leaked groups, buffer and message races) are suspicions too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from distdbg.record.entries import SOURCE_DROPPED
from distdbg.record.known_marks import EXIT_CALL

OTHER: Final = "other"
SUSPICION: Final = "suspicion"
CHECKS: Final = {
    "MismatchError": "mismatch",
    "NonFiniteError": "nonfinite",
    "BufferChangedError": "buffer_changed",
    "DivergedError": "diverged",
    "Suspicion": SUSPICION,
    "RankLeft": "rank_left",
    "PeerLost": "peer_lost",
    "OpTimeout": "timeout",
    "JobAborted": "aborted",
}
_LATENT: Final = ("LeakedWork", "LeakedGroup", "BufferRace", "MessageRace")


def check_of(words: Mapping[str, Any]) -> str | None:
    """Of what `findings.read_words` gives; None for what is no error of an op: how a program ended."""
    kind = words.get("type")
    if not kind or kind in (SOURCE_DROPPED, EXIT_CALL):
        return None
    return SUSPICION if kind in _LATENT else CHECKS.get(str(kind), OTHER)
