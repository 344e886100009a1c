"""What the ranks of this host are doing, by their records: for the report of a stopped job.

A person mostly ends a job because it hangs; afterwards the records show only the end.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from distdbg.errors import RecordError, format_ranks
from distdbg.launch.last_seen import last_seen, seen_now
from distdbg.launch.late_ranks import join_words
from distdbg.record import thresholds
from distdbg.record.durations import duration_text
from distdbg.record.folders import record_name
from distdbg.record.observations import (
    Observation,
    lock_holder_in,
    never_ends,
    phrase_of,
    read_sightings,
)

_MAX_LINES: Final = 8
#: Ops that failed this shortly before were ended by the signal: Ctrl-C reaches the ranks first.
_ENDED_NS: Final = 2_000_000_000
#: From this on a wait is reported as a hang, where a signal ends the job and nobody saw what is waited for.
_HANG_NS: Final = thresholds.limit_ns(None)
#: A shorter wait is that of any step.
_WAIT_S: Final = 1.0
_MAX_LATE: Final = 3
_AGE: Final = re.compile(r"(?:\d+ (?:d|h|min) )?\d+(?:\.\d+)? (?:[num]?s|min|h)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """What the ranks of this host do at one moment."""

    lines: tuple[str, ...] = ()
    """One for all ranks that do the same, the most of them first."""
    hang: str = ""
    """What they hang in; '' where no rank has waited for long."""
    waited: str = ""
    """The waits between ranks, where they have not lasted long."""


def what_ranks_do(folder: Path, pids: Mapping[int, int]) -> HostActivity:
    """What ranks do by their records, and by what the agent has seen; nothing without records."""
    paths = {rank: folder / record_name(rank) for rank in pids}
    if not any(map(os.path.exists, paths.values())):
        hang, waited = join_words(folder, pids)
        return HostActivity(hang=hang, waited=waited)
    try:
        # Not before it is needed: the reader of records is a fifth of what a launcher would load.
        from distdbg.record.rank_words import Clock, describe, op_text, op_waited_in, read_boot_id
        from distdbg.record.reader import RecordFile
    except (OSError, ImportError):
        # No file can be opened any more, or the package was replaced while the job ran.
        return HostActivity()
    now_ns, boot_id = time.monotonic_ns(), read_boot_id()
    words, places, ops = {}, {}, {}
    waited_s: dict[int, float] = {}
    limits_ns: dict[int, int] = {}
    holders: dict[int, int | None] = {}
    seen: list[Observation] = []
    with suppress(OSError):
        seen += read_sightings(folder)
    for rank, pid in pids.items():
        try:
            with RecordFile(paths[rank], salvage=True) as record:
                if record.header.pid == pid:
                    words[rank] = describe(record, Clock(record.header, now_ns, boot_id)) or ""
                    if (op := op_waited_in(record, now_ns - _ENDED_NS)) is not None:
                        waited_s[rank] = (now_ns - op.issued_ns) / 1e9
                        ops[rank] = op_text(op)
                    elif now := seen_now(seen, rank, pid, record.state().heartbeat_ns):
                        limits_ns[rank] = thresholds.limit_ns(now.state, now.longest_gap_ns)
                        if never_ends(now.why):
                            limits_ns[rank] = 0  # what it waits for will not come
                        holders[rank] = lock_holder_in(now.why)
                        if place := phrase_of(now):
                            places[rank] = place
                            words[rank] += f"; {place}" if words[rank] else place
        except RecordError:
            continue
    # A rank waits for ever for a lock whose holder waits for it in an op.
    limits_ns |= {rank: 0 for rank, holder in holders.items() if holder in waited_s}
    hang = name_hang(
        words, waited_s, {r: one.text for r, one in last_seen(seen, pids).items()}, limits_ns
    )
    waited = "" if hang else name_waits(words, waited_s, ops, places)
    return HostActivity(lines=fold(words), hang=hang, waited=waited)


def name_waits(
    words: Mapping[int, str],
    waited_s: Mapping[int, float],
    ops: Mapping[int, str],
    places: Mapping[int, str],
) -> str:
    """'ranks 0-1,3 had waited 2.1 s in all_reduce #5 (x.py:12) for rank 2, asleep in load() at x.py:7'. Pure.

    '' where nobody waits for another one, or not for longer than a slow step takes, or in several ops: then a
    line for each says more. `places` are of the ranks that are in no op.
    """
    late = sorted(set(words) - set(waited_s))
    if not late or not waited_s or min(waited_s.values()) < _WAIT_S or len(set(ops.values())) > 1:
        return ""
    who = f"rank{'s' if len(waited_s) > 1 else ''} {format_ranks(waited_s)}"
    op = next(iter(ops.values()))
    line = f"{who} had waited {duration_text(min(waited_s.values()))} in {op}"
    line += f" for rank{'s' if len(late) > 1 else ''} {format_ranks(late)}"
    known = {rank: places.get(rank) or words[rank] for rank in late}
    if len(set(known.values())) == 1:
        text = known[late[0]]
        place = f", {text}" if late[0] in places else f" ({text})"
        return f"{line}{place}" if text else line
    each = [f"rank {rank} {text}" for rank, text in known.items() if text]
    return f"{line}: {'; '.join(each[:_MAX_LATE])}{'; ...' if len(each) > _MAX_LATE else ''}"


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
        for ranks in groups[:_MAX_LINES]
    ]
    if hidden := groups[_MAX_LINES:]:
        rest = format_ranks(rank for ranks in hidden for rank in ranks)
        lines.append(f"ranks {rest}: in {len(hidden)} other places")
    return tuple(lines)
