"""What is left of a job, as a feed for the dashboard: a run of ours, dumps of another tool, a recording."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.errors import UsageError

if TYPE_CHECKING:
    from distdbg.view.feed import Feed
    from distdbg.view.snapshot import LogRow

#: So many of the last lines that ranks have printed are kept in memory.
_MAX_LINES: Final = 50_000
_MAX_LETTERS: Final = 2000


def open_replay(path: Path, *, attempt: int | None = None) -> Feed:
    """A folder of a run, records, dumps that `analyze` reads, or a file of `top --record`.

    DistError when nothing there can be shown.
    """
    from distdbg.tui.recording.reader import is_recording

    if path.is_file() and is_recording(path):
        if attempt is not None:
            raise UsageError(f"{path} is one recording: it has no other starts")
        from distdbg.tui.recording.feed import RecordedFeed

        return RecordedFeed.open(path)
    from distdbg.cli.chosen_run import load_chosen
    from distdbg.tui.replay_feed import ReplayFeed

    session = load_chosen([path], attempt=attempt)
    if not session.ranks:
        raise UsageError(
            f"{path}: no rank left a record of what it did, so there is nothing to replay",
            hint=f"distdbg analyze {path} says what is known of it",
        )
    start = session.attempt
    read_log = (lambda: read_kept_lines(path, start)) if path.is_dir() else None
    return ReplayFeed(session, read_log=read_log)


def read_kept_lines(folder: Path, attempt: int) -> list[LogRow]:
    """What the ranks of one start of the job printed, by time, equal lines once; the last of very many."""
    from distdbg.launch.output_streams import StdStreams
    from distdbg.launch.outputs.kept import find_kept
    from distdbg.launch.outputs.merged import WINDOW_NS, Merger, read_ahead
    from distdbg.launch.outputs.timed import TimedFile
    from distdbg.view.snapshot import LogRow

    zone_ns = time.localtime().tm_gmtoff * 10**9
    files = [file for file in find_kept(folder) if file.attempt == attempt]
    sources: list[TimedFile] = []
    rows: deque[LogRow] = deque(maxlen=_MAX_LINES)
    merger = Merger(len(files), window_ns=WINDOW_NS)
    try:
        sources += [TimedFile(file, local_zone_ns=zone_ns) for file in files]
        is_at_end = [False] * len(sources)
        while True:
            while read_ahead(merger, sources, is_at_end):
                pass
            line = merger.take()
            if line is None:
                break
            is_time = line.time_ns > 10**17  # else it is a count of lines
            text = line.text.rstrip("\r").rpartition("\r")[2][:_MAX_LETTERS]
            rows.append(
                LogRow(
                    at=line.time_ns / 1e9 if is_time else None,
                    ranks=tuple(line.ranks),
                    stream="err" if line.stream is StdStreams.ERR else "out",
                    text=text,
                )
            )
    except OSError:  # what was read is shown
        pass
    finally:
        for source in sources:
            source.close()
    return list(rows)
