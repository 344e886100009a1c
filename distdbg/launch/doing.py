"""What the ranks of this host are doing, by their records: for the report of a stopped job.

A person mostly ends a job because it hangs; afterwards the records show only the end.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final

from distdbg.errors import RecordError, format_ranks
from distdbg.launch.last_seen import last_seen, seen_now
from distdbg.record import thresholds
from distdbg.record.durations import duration_text
from distdbg.record.folders import record_name
from distdbg.record.sightings import Sighting, phrase_of, read_sightings

_MOST_LINES: Final = 8
#: Ops that failed this shortly before were ended by the signal: Ctrl-C reaches the ranks first.
_ENDED_NS: Final = 2_000_000_000
#: From this on a wait is reported as a hang, where a signal ends the job and nobody saw what is waited for.
_HANG_NS: Final = thresholds.limit_ns(None)
_AGE: Final = re.compile(r"(?:\d+ (?:d|h|min) )?\d+(?:\.\d+)? (?:[num]?s|min|h)\b")


def what_ranks_do(folder: Path, pids: Mapping[int, int]) -> tuple[tuple[str, ...], str]:
    """One line for all ranks that do the same, the most of them first; and what they hang in.

    Nothing without records. The second is '' where no rank has waited for long.
    """
    paths = {rank: folder / record_name(rank) for rank in pids}
    if not any(map(os.path.exists, paths.values())):
        return (), ""
    try:
        # Not before it is needed: the reader of records is a fifth of what a launcher would load.
        from distdbg.record.reader import RecordFile
        from distdbg.record.whereabouts import Clock, describe, read_boot_id, waits_since
    except (OSError, ImportError):
        # No file can be opened any more, or the package was replaced while the job ran.
        return (), ""
    now_ns, boot_id = time.monotonic_ns(), read_boot_id()
    words = {}
    waited_s: dict[int, float] = {}
    limits_ns: dict[int, int] = {}
    seen: list[Sighting] = []
    with suppress(OSError):
        seen += read_sightings(folder)
    for rank, pid in pids.items():
        try:
            with RecordFile(paths[rank], salvage=True) as record:
                if record.header.pid == pid:
                    words[rank] = describe(record, Clock(record.header, now_ns, boot_id)) or ""
                    if (since_ns := waits_since(record, now_ns - _ENDED_NS)) is not None:
                        waited_s[rank] = (now_ns - since_ns) / 1e9
                    elif now := seen_now(seen, rank, pid, record.state().heartbeat_ns):
                        limits_ns[rank] = thresholds.limit_ns(now.state, now.longest_gap_ns)
                        if place := phrase_of(now):
                            words[rank] += f"; {place}" if words[rank] else place
        except RecordError:
            continue
    return fold(words), name_hang(words, waited_s, last_seen(seen, pids), limits_ns)


def name_hang(
    words: Mapping[int, str],
    waited_s: Mapping[int, float],
    seen: Mapping[int, str],
    limits_ns: Mapping[int, int] = MappingProxyType({}),
) -> str:
    """'ranks 0-1,3 waited 1 min 39 s for rank 2, asleep in load() at slp.py:7'; '' for no hang. Pure.

    `waited_s` holds the ranks that are in an op, and for how long; `limits_ns` from when on that is too long
    for each of the others, as `analyze` has it. A job that is ended while all goes on has shorter waits: then
    nothing is named.
    """
    late = sorted(set(words) - set(waited_s))
    limit_s = min((limits_ns.get(rank, _HANG_NS) for rank in late), default=_HANG_NS) / 1e9
    waiting = {rank: waited for rank, waited in waited_s.items() if waited >= limit_s}
    if not waiting or set(words) - set(waiting) - set(late):
        return ""  # some have reached an op just now: it goes on
    who = f"rank{'s' if len(waiting) > 1 else ''} {format_ranks(waiting)}"
    line = f"{who} waited {duration_text(min(waiting.values()))}"
    if not late:
        return line
    line += f" for rank{'s' if len(late) > 1 else ''} {format_ranks(late)}"
    known = {seen.get(rank, "") for rank in late}
    return f"{line}, {known.pop()}" if len(known) == 1 and "" not in known else line


def fold(words: Mapping[int, str]) -> tuple[str, ...]:
    """Join ranks whose words differ in ages alone. Pure."""
    alike: dict[str, list[int]] = {}
    for rank, text in sorted(words.items()):
        if text:
            alike.setdefault(_AGE.sub("", text), []).append(rank)
    groups = sorted(alike.values(), key=lambda ranks: (-len(ranks), ranks[0]))
    lines = [
        f"rank{'s' if len(ranks) > 1 else ''} {format_ranks(ranks)}: {words[ranks[0]]}"
        for ranks in groups[:_MOST_LINES]
    ]
    if hidden := groups[_MOST_LINES:]:
        rest = format_ranks(rank for ranks in hidden for rank in ranks)
        lines.append(f"ranks {rest}: in {len(hidden)} other places")
    return tuple(lines)
