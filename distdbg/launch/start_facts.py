"""What node 0 of a round decides for all launchers: one key in the round's store, JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Self

from distdbg.errors import DistStoreError, RendezvousError
from distdbg.launch.rendezvous.round import LauncherRound
from distdbg.record.durations import duration_text

_KEY = "start"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """How one start of the ranks is made."""

    run: str
    """The name of the run."""
    restarts: int
    """How many were used up by failures before."""
    master_addr: str
    master_port: int
    """Where libraries meet that do not know the launcher's store."""

    def publish(self, round_: LauncherRound) -> None:
        """Node 0 says it."""
        round_.store.set(_KEY, json.dumps(asdict(self)))

    @classmethod
    def receive(cls, round_: LauncherRound, timeout_s: float) -> Self:
        """The others wait for it; RendezvousError when nothing comes."""
        try:
            round_.store.wait([_KEY], timedelta(seconds=timeout_s))
            facts = json.loads(round_.store.get(_KEY))
            return cls(
                run=str(facts["run"]),
                restarts=int(facts["restarts"]),
                master_addr=str(facts["master_addr"]),
                master_port=int(facts["master_port"]),
            )
        except (DistStoreError, ValueError, KeyError, TypeError) as error:
            first = round_.nodes[0]
            raise RendezvousError(
                f"the launcher on {first.host} did not publish within {duration_text(timeout_s)} "
                f"how the ranks of round {round_.number} start",
                joined=range(len(round_.nodes)),
                expected=len(round_.nodes),
                hint=f"look at the output of the launcher on {first.host}",
            ) from error
