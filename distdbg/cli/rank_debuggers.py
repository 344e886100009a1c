"""The debuggers of a run's ranks: by sockets in its folder where that is here, else through its agents."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from distdbg.client.addresses import LocalAddress, parse_address
from distdbg.client.agent_client import AgentError
from distdbg.client.live_runs import choose_run, find_live_runs
from distdbg.client.ways import AgentRoute, find_way
from distdbg.control import sockets
from distdbg.debugger.client import DebugClient
from distdbg.debugger.desk import not_debuggable
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.follow.processes import stopped_process
from distdbg.record.ends import read_ends
from distdbg.record.folders import attempts, is_live, pid_of, record_name
from distdbg.record.host import host_name
from distdbg.record.rank_list import ranks_of_world
from distdbg.record.run_summary import world_size_of

#: How long the first line of a rank may take, which is long where it holds the GIL.
_HELLO_S = 60.0
#: The launcher, or the agent, writes down how a rank ended.
_END_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAtPrompt:
    rank: int
    site: str
    why: str


@dataclass(slots=True)
class RankDebuggers:
    """The debuggers of one run. `close` it."""

    name: str
    folder: Path | None
    """Where its records and sockets are, as far as they are here."""
    way: AgentRoute | None

    def connect(
        self,
        rank: int,
        *,
        hello_s: float = _HELLO_S,
        on_slow: Callable[[str], None] | None = None,
    ) -> DebugClient:
        """UsageError when this rank cannot be debugged now, with what would help."""
        if self.folder is not None:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                sock = sockets.connect(self.folder / sockets.debugger_socket(rank), 5.0)
                sock.settimeout(None)
                return DebugClient(sock, hello_s=hello_s, on_slow=on_slow)
            self._say_why_not(rank)
            world_size = world_size_of(self.folder)
            if 0 < world_size <= rank:
                ranks = ranks_of_world(world_size)
                raise UsageError(f"run {self.name} has no rank {rank}, it has {ranks}")
        if self.way is None:
            raise UsageError(f"run {self.name} has no rank {rank} on this host")
        try:
            with self.way.connect() as client:
                return DebugClient(client.debug(rank), hello_s=hello_s, on_slow=on_slow)
        except AgentError as error:
            raise UsageError(error.what, hint=error.hint) from error

    def stopped(self) -> list[RankAtPrompt]:
        """The ranks that sit at a prompt; on all hosts where the agents can be asked."""
        found = {one.rank: one for one in self._stopped_here()}
        with suppress(DistError):
            if self.way is not None:
                with self.way.connect_root() as client:
                    for row in client.ask("breakpoints")["stopped"]:
                        one = RankAtPrompt(
                            rank=int(row["rank"]), site=str(row["site"]), why=str(row["why"])
                        )
                        found.setdefault(one.rank, one)
        return [found[rank] for rank in sorted(found)]

    def ranks(self) -> list[int]:
        found: set[int] = set()
        if self.folder is not None:
            found.update(int(path.stem[4:]) for path in self.folder.glob("rank?????.ddr"))
        with suppress(DistError):
            if self.way is not None:
                with self.way.connect_root() as client:
                    found.update(int(row["rank"]) for row in client.ask("ranks")["ranks"])
        return sorted(found)

    def how_it_ended(self, rank: int) -> str:
        """'exited with code 3'; '' where it lives, or nobody has written it down in a while."""
        deadline = time.monotonic() + _END_S
        while self.folder is not None:
            for end in read_ends(self.folder):
                if end.rank == rank:
                    return end.how
            if is_live(self.folder / record_name(rank)) or time.monotonic() > deadline:
                break
            time.sleep(0.05)  # nothing announces a line in a file
        return ""

    def close(self) -> None:
        if self.way is not None:
            self.way.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _say_why_not(self, rank: int) -> None:
        """Say why a rank of this folder cannot be debugged; nothing about one that is elsewhere."""
        assert self.folder is not None  # the caller has looked
        record = self.folder / record_name(rank)
        if is_live(record):
            why = "" if (pid := pid_of(record)) is None else stopped_process(rank, pid)
            raise UsageError(why or not_debuggable(rank))
        if record.exists():
            how = self.how_it_ended(rank) or "has ended"
            raise UsageError(f"rank {rank} of run {self.name} {how}")

    def _stopped_here(self) -> list[RankAtPrompt]:
        found = []
        for path in () if self.folder is None else self.folder.glob(sockets.debugger_socket("*")):
            try:
                with DebugClient(sockets.connect(path, 2.0), hello_s=2.0) as client:
                    hello: dict[str, Any] = client.hello
            except (OSError, DistNetworkError):
                continue
            if hello.get("state") == "stopped":
                site, why = str(hello.get("site", "")), str(hello.get("why", ""))
                found.append(RankAtPrompt(rank=int(hello["rank"]), site=site, why=why))
        return found


def find_debuggers(run: str | None) -> RankDebuggers:
    """Those of the run that a command line means: a name, an address, or a folder of records."""
    if run is not None and "/" in run and Path(run).is_dir():
        return RankDebuggers(Path(run).name, attempts(Path(run))[-1], None)
    if not isinstance(parse_address(run), LocalAddress):
        way = find_way(run)
        return RankDebuggers(way.name, None, way)
    live = choose_run(find_live_runs(host_name()), run)
    if live.socket is None:
        return RankDebuggers(live.run, live.folder, None)
    way = find_way(live.run)
    folder: Path | None = live.folder
    if folder is None:
        with suppress(DistError), way.connect() as client:
            folder = Path(client.ask("about")["folder"])
    return RankDebuggers(live.run, folder, way)
