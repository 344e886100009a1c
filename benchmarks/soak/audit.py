"""What a rank holds at a quiet moment, and what its record says of the way so far."""

from __future__ import annotations

import gc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import distdbg as dist
from distdbg.record.entries import FindingEntry, OpEntry, Record
from distdbg.record.folders import record_name
from distdbg.record.reader import read_record
from distdbg.runtime.process.world import current
from distdbg.testing.leaks import take_holdings


@dataclass(frozen=True, slots=True)
class Holdings:
    """Counts that must not grow, and sizes that hardly may."""

    store_keys: int
    threads: int
    children: int
    descriptors: int
    segments: int
    #: All of the process's memory, and what is not shared with a file or another rank.
    resident_kib: int
    anonymous_kib: int

    def as_json(self) -> dict[str, int]:
        return asdict(self)


def take_stock() -> Holdings:
    """Look at this rank; all ranks call it when nothing is under way and one group is alive."""
    gc.collect()
    dist.barrier()
    world = current()
    assert world.membership is not None
    keys = world.membership.store.num_keys()
    held = take_holdings()
    sizes = memory_kib()
    dist.barrier()
    return Holdings(
        store_keys=keys,
        threads=len(held.threads),
        children=len(held.children),
        descriptors=len(held.descriptors),
        segments=len(held.segments),
        resident_kib=sizes["VmRSS"],
        anonymous_kib=sizes["RssAnon"],
    )


def memory_kib() -> dict[str, int]:
    """The process's memory: all of it, and what is its own."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) for name in ("VmRSS", "RssAnon")}


def read_own_record() -> Record:
    folder = current().run_folder
    assert folder is not None, "this rank has no record"
    return read_record(folder / record_name(dist.get_rank()))


def complaints(record: Record) -> list[str]:
    """All that the record holds against the program or against itself."""
    found = [f"gap: {gap}" for gap in record.gaps]
    found += [
        f"finding: {event.text}" for event in record.events if isinstance(event, FindingEntry)
    ]
    found += [
        f"{op.name} #{op.seq}: {op.status_label}"
        for op in record.ops
        if op.status is None or op.status != 0
    ]
    found += [
        f"{counter.failed} failed ops in a counter" for counter in record.counters if counter.failed
    ]
    state = record.state
    if state.text_count:
        found.append(f"{state.text_count} errors or findings were written")
    lost: dict[str, Any] = {
        "strings": state.lost_strings,
        "sites": state.lost_sites,
        "parked ops": state.lost_parked,
        "counted ops": state.lost_counters,
    }
    found += [f"{count} lost {what}" for what, count in lost.items() if count]
    return found


def count_ops(record: Record) -> int:
    """Ops among the events that are still there."""
    return sum(isinstance(event, OpEntry) for event in record.events)
