"""The rendezvous of a single launcher: no waiting, a store for its ranks on a free port."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from distdbg.errors import RendezvousClosedError
from distdbg.launch.rendezvous.round import Closing, LauncherRound, NodeFacts, round_prefix

if TYPE_CHECKING:
    from distdbg.runtime.store import TCPStore


class SoloRendezvous:
    """The rendezvous of a job with a single node. Only this host can reach its store."""

    def __init__(self, job: str, *, host: str = "127.0.0.1", timeout_s: float = 60.0) -> None:
        self._job = job
        self._host = host
        self._timeout_s = timeout_s
        self._number = 0
        self._store: TCPStore | None = None
        self._closing: Closing | None = None

    def next_round(self, facts: NodeFacts, deadline_ns: int | None = None) -> LauncherRound:
        from distdbg.runtime.store import PrefixStore, TCPStore

        if self._closing is not None:
            raise RendezvousClosedError(f"the job is over: {self._closing.reason}")
        if self._store is None:
            self._store = TCPStore(
                self._host, 0, is_master=True, timeout=timedelta(seconds=self._timeout_s)
            )
        number, self._number = self._number, self._number + 1
        prefix = round_prefix(self._job, number)
        return LauncherRound(
            number=number,
            node_rank=0,
            nodes=(facts,),
            store=PrefixStore(f"{prefix}/launchers", self._store),
            store_host=self._host,
            store_port=self._store.port,
            prefix=prefix,
            serves=True,
        )

    def interrupt(self) -> None:
        """Nothing waits here."""

    def waiting_count(self) -> int:
        return 0

    def next_has_begun(self) -> bool:
        return False

    def lost_nodes(self) -> tuple[str, ...]:
        return ()

    def closing(self) -> Closing | None:
        return self._closing

    def close(self, reason: str, *, is_well: bool = False, exit_code: int = 1) -> None:
        closing = Closing(reason=reason, is_well=is_well, exit_code=exit_code)
        self._closing = self._closing or closing

    def shutdown(self) -> None:
        self._closing = self._closing or Closing(reason="its launcher left", is_well=False)
        store, self._store = self._store, None
        if store is not None:
            store.close()
