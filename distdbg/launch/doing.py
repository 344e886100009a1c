"""What the ranks of this host do at this moment, by their records: for the report of a job that is stopped.

Whoever ends a job by hand mostly does so because it hangs; afterwards the records tell of the end.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from distdbg.errors import RecordError, format_ranks
from distdbg.record.folders import record_name

_MOST_LINES: Final = 8
_AGE: Final = re.compile(r"\d+\.\d s\b")


def what_ranks_do(folder: Path, pids: Mapping[int, int]) -> tuple[str, ...]:
    """One line for all ranks that do the same, the most of them first; none without records."""
    paths = {rank: folder / record_name(rank) for rank in pids}
    if not any(map(os.path.exists, paths.values())):
        return ()
    try:
        # Not before it is needed: the reader of records is a fifth of what a launcher would load.
        from distdbg.record.reader import RecordFile
        from distdbg.record.whereabouts import Clock, describe, read_boot_id
    except (OSError, ImportError):
        # No file can be opened any more, or the package was replaced while the job ran.
        return ()
    now_ns, boot_id = time.monotonic_ns(), read_boot_id()
    words = {}
    for rank, pid in pids.items():
        try:
            with RecordFile(paths[rank], salvage=True) as record:
                if record.header.pid == pid:
                    words[rank] = describe(record, Clock(record.header, now_ns, boot_id)) or ""
        except RecordError:
            continue
    return fold(words)


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
