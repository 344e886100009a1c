"""One start of the ranks while it runs, as its launcher sees it: where it is, and who failed first."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from distdbg.launch.attempt import Attempt
from distdbg.launch.evidence import Evidence, gather
from distdbg.launch.outputs.outputs import Outputs
from distdbg.launch.rendezvous.notes import Notes
from distdbg.launch.rendezvous.round import Round
from distdbg.launch.root_cause import find_root_cause
from distdbg.launch.std import Std

#: After the first failure: others that fail by themselves at the same time tell more than a SIGTERM.
_SETTLE_S = 0.25
#: While all that failed lost somebody else: how long to look for who that was.
_ROOT_CAUSE_S = 1.0


@dataclass(slots=True, kw_only=True)
class Running:
    """One start, from the first rank to the last end."""

    round: Round
    folder: Path
    number: int
    attempt: Attempt
    notes: Notes
    outputs: Outputs
    failed_at: float | None = None
    done_at: float | None = None
    failure: str | None = None
    evidence: list[Evidence] = field(default_factory=list)

    def find_failure(self, silence_s: float) -> str | None:
        """What failed here, once it is clear enough who was first.

        After `silence_s` another launcher is known to be dead.
        """
        found = find_root_cause(self.evidence)
        if self.failed_at is None or found is None:
            return None
        since_s = time.monotonic() - self.failed_at
        has_others = len(self.round.nodes) > 1
        if found.is_elsewhere and has_others:
            # Another launcher notes the failure of its ranks, or is taken for dead; but not when
            # those that are blamed have ended well, too early.
            is_clear = found.blamed and found.blamed <= self._ended_well()
            if since_s < (_SETTLE_S if is_clear else silence_s + _ROOT_CAUSE_S):
                return None
        elif (self.attempt.running or has_others) and since_s < (
            _ROOT_CAUSE_S if found.is_elsewhere else _SETTLE_S
        ):
            return None
        first = found.first[0]
        if has_others:
            return f"rank {first.rank} on host {first.end.host} failed first: it {found.how}"
        return f"rank {first.rank} {found.how}"

    def _ended_well(self) -> frozenset[int]:
        """The ranks of other hosts that did."""
        notes, ranks = self.notes.read(), set(self.notes.left)
        for node, here in self.round.ranks_by_node():
            note = notes.get(node.name)
            if note is not None and note.kind == "finished":
                ranks.update(here)
        return frozenset(ranks)

    def gather(self) -> list[Evidence]:
        """Read what the ranks that ended have left."""
        outputs = self.outputs
        first = self.round.first_rank
        return gather(
            self.attempt.ends.values(),
            self.folder,
            lambda rank: outputs.error_file(rank - first, self.number),
            lambda rank: outputs.log_file(rank - first, self.number, Std.ERR),
        )
