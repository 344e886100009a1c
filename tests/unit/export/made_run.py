"""Run folders of jobs that never ran, for tests of what a run is exported to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distdbg.export.reading import OpenedRun, RunSelection, open_run
from distdbg.record.folders import record_name
from distdbg.record.format import Aside, EventType, Flag
from distdbg.record.forms import write_form
from tests.support.record_builder import RecordBuilder

WALL_NS = 1_790_000_000 * 10**9
SITE = [("/job/train.py", 88, "step"), ("/job/train.py", 120, "main")]


class MadeRun:
    """A record per rank. Group 'world' is there; all calls take their place in time one after the other."""

    def __init__(self, world_size: int, *, ring_count: int = 64, run: str = "made") -> None:
        self.builds = [
            RecordBuilder(
                rank=rank,
                world_size=world_size,
                ring_count=ring_count,
                form_count=64,
                site_count=32,
                text_count=8,
                group_count=8,
                parked_count=8,
                strings_nbytes=4096,
                run=run,
                host="n00",
                boot_id="one",
                wall_ns=WALL_NS,
                monotonic_ns=0,
                pid=1000 + rank,
            )
            for rank in range(world_size)
        ]
        self.groups: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[tuple[int, str], int] = {}
        self._issued: Counter[tuple[int, str]] = Counter()
        self._ended: Counter[tuple[int, str]] = Counter()
        self._messages: Counter[tuple[object, ...]] = Counter()
        self._now_ns = 0
        self.group("world", range(world_size))

    def group(self, name: str, ranks: Sequence[int]) -> None:
        self.groups[name] = tuple(ranks)
        for place, rank in enumerate(ranks):
            self._numbers[rank, name] = self.builds[rank].add_group(
                name, ranks=",".join(map(str, ranks)), size=len(ranks), rank=place
            )

    def op(
        self,
        rank: int,
        kind: str,
        *,
        group: str = "world",
        has_ended: bool = True,
        status: int = 0,
        site: Sequence[tuple[str, int, str]] = SITE,
        error: str | None = None,
        **facts: Any,
    ) -> int:
        """A collective: 1 us until all have come, 2 us in all; its number."""
        self._now_ns += 10_000
        build, key = self.builds[rank], (rank, group)
        self._issued[key] += 1
        if kind != "barrier":
            facts = {"dtype": "float32", "inputs": [(4,)], "outputs": [(4,)], "nbytes": 16} | facts
        number = build.issue(
            kind, self._numbers[key], at_ns=self._now_ns, seq=self._issued[key], stack=site, **facts
        )
        if has_ended:
            self._ended[key] += not status
            build.start(number, after_ns=1_000)
            build.end(number, after_ns=2_000, status=status, error=error)
        elif status:
            build.end(number, after_ns=2_000, status=status, error=error)
        build.set_group(
            self._numbers[key], issued_seq=self._issued[key], ended_seq=self._ended[key]
        )
        return number

    def all(self, kind: str, *, group: str = "world", **facts: Any) -> None:
        for rank in self.groups[group]:
            self.op(rank, kind, group=group, **facts)

    def message(
        self,
        kind: str,
        rank: int,
        peer: int | None,
        *,
        group: str = "world",
        source: int | None = None,
        has_ended: bool = True,
        count: int = 4,
        tag: int = 0,
    ) -> int:
        """A send or recv; `peer` None: from any, of whom `source` was it."""
        self._now_ns += 10_000
        ranks = self.groups[group]
        place = -1 if peer is None else ranks.index(peer)
        key = (rank, group, kind, place)
        self._messages[key] += 1
        shapes: dict[str, Any] = {"inputs" if kind == "send" else "outputs": [(count,)]}
        number = self.builds[rank].issue(
            kind,
            self._numbers[rank, group],
            at_ns=self._now_ns,
            seq=self._messages[key],
            peer=place,
            tag=tag,
            stack=SITE,
            dtype="float32",
            nbytes=4 * count,
            **shapes,
        )
        if has_ended:
            whom = source if source is not None else peer
            assert whom is not None
            self.builds[rank].end(
                number, after_ns=2_000, source=ranks.index(whom) if kind == "recv" else -1
            )
        return number

    def send(self, sender: int, receiver: int, **facts: Any) -> None:
        """Both ends of one."""
        self.message("send", sender, receiver, **facts)
        self.message("recv", receiver, sender, **facts)

    def aside(self, rank: int, kind: Aside, *, group: str = "world") -> int:
        self._now_ns += 10_000
        build = self.builds[rank]
        number = build.write_event(
            EventType.OP,
            issued_ns=self._now_ns,
            seq=1,
            group=self._numbers[rank, group],
            form=build.add_form(write_form(name=kind.label, kind=kind.label)),
            flags=int(Flag.ASIDE),
            kind=int(kind),
            thread=1,
        )
        build.end(number, after_ns=3_000)
        return number

    def save(self, folder: Path, *, ranks: Sequence[int] | None = None) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for rank, build in enumerate(self.builds):
            build.set_state(heartbeat_ns=self._now_ns + 10**9)
            if ranks is None or rank in ranks:
                (folder / record_name(rank)).write_bytes(build.to_bytes())
        return folder

    def open(self, folder: Path, chosen: RunSelection | None = None) -> OpenedRun:
        return open_run([self.save(folder)], chosen)


def every_kind(world_size: int = 4) -> MadeRun:
    """A job that went well and has called everything, with messages across and a group of some."""
    run = MadeRun(world_size)
    blocks = [(4,)] * world_size
    whole = [(4 * world_size,)]
    run.all("all_reduce", op="SUM")
    run.all("broadcast", root=1)
    for rank in range(world_size):
        is_root = rank == 1
        run.op(rank, "reduce", op="SUM", root=1, outputs=[(4,)] if is_root else [])
    for rank in range(
        world_size
    ):  # a list of blocks is called in one place, one array in the other
        run.op(rank, "all_gather", outputs=blocks if rank % 2 else whole)
        run.op(rank, "reduce_scatter", inputs=whole if rank % 2 else blocks, op="SUM")
    uneven = [(n + 1,) for n in range(world_size)]
    for rank in range(world_size):
        run.op(rank, "all_gather", inputs=[uneven[rank]], outputs=uneven)
        run.op(rank, "reduce_scatter", inputs=uneven, outputs=[uneven[rank]], op="SUM")
        run.op(rank, "all_to_all", inputs=[(rank + 1,)], outputs=[(world_size - rank,)])
        run.op(rank, "gather", root=0, outputs=blocks if rank == 0 else [])
        run.op(rank, "scatter", root=0, inputs=blocks if rank == 0 else [])
    run.all("barrier")
    run.group("pair", (2, 3))
    for rank in range(world_size):
        run.aside(rank, Aside.NEW_GROUP)
    run.all("all_reduce", group="pair", op="SUM")
    for rank in range(world_size):  # a ring: torch's own recorder makes its analyzer stumble here
        run.message("send", rank, (rank + 1) % world_size)
        run.message("recv", rank, (rank - 1) % world_size)
    run.send(3, 0)
    run.send(2, 3, group="pair", count=7)
    run.send(0, 2, tag=1)
    run.message("send", 0, 2, tag=2)
    run.message("recv", 2, None, source=0, tag=2)
    run.all("all_reduce", op="SUM")
    return run
