"""`distdbg logs`: what the ranks of a run printed, merged by time; equal lines once, with their ranks."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import UsageError, format_ranks
from distdbg.launch.output_streams import StdStreams
from distdbg.launch.outputs.kept import KeptFile, find_kept
from distdbg.launch.outputs.merged import WINDOW_NS, Folded, Merger, read_ahead
from distdbg.launch.outputs.timed import TimedFile
from distdbg.record.folders import attempts, is_held
from distdbg.record.printable import printable
from distdbg.record.rank_list import read_ranks

#: Following, a line waits so long for equal ones of other ranks; the launcher's looks are as far apart.
_HOLD_NS: Final = 500_000_000
_POLL_S: Final = 0.1
_HELD_S: Final = 0.5
_STREAMS: Final = {"out": StdStreams.OUT, "err": StdStreams.ERR}
_UNITS: Final = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What is to be shown, and how."""

    ranks: frozenset[int] | None
    stream: StdStreams
    since_ns: int | None
    pattern: re.Pattern[str] | None
    folds: bool
    is_json: bool
    is_raw: bool


def main(argv: Sequence[str]) -> int:
    """Print them; exit code 0 also when no line fits."""
    parser = argparse.ArgumentParser(
        prog="distdbg logs",
        description=__doc__,
        epilog="RUN is the name of a run or its beginning, or a folder: of a run, or one that --log-dir "
        "named, torchrun's too. Without it: the latest run. `distdbg run` keeps what ranks print when "
        "it is started with --redirects 3 (files only) or --tee 3 (shown as well).",
    )
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="which run; the latest when not given"
    )
    parser.add_argument("--rank", metavar="LIST", help="of these ranks alone: 0-3,7")
    parser.add_argument("--stream", choices=("out", "err"), help="stdout or stderr alone")
    parser.add_argument("--grep", metavar="REGEX", help="only lines in which this is found")
    parser.add_argument(
        "--since", metavar="WHEN", help="only later lines: 30s, 10m, 2h ago, or 2026-11-20T12:00:00"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on with what comes, until the job ends"
    )
    parser.add_argument("--no-fold", action="store_true", help="each line of each rank by itself")
    parser.add_argument("--raw", action="store_true", help="with control characters as they are")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    chosen = parser.parse_args(argv)
    choice = _choose(chosen)
    folder = find_run(chosen.run)
    files = _fitting(find_kept(folder), choice)
    is_live = is_held(folder, tries=1)
    if not files and not (chosen.follow and is_live and not _keeps_none(folder)):
        raise _nothing_kept(folder)
    printer = _Printer(choice)
    attempt = 0
    while True:
        attempts = sorted({file.attempt for file in files if file.attempt >= attempt})
        if attempts:
            attempt = attempts[0]
            printer.begin(attempt)
            _show(folder, attempt, choice, printer, follows=chosen.follow)
            attempt += 1
        elif not (chosen.follow and is_held(folder, tries=1)):
            break
        else:
            time.sleep(_POLL_S)
        files = _fitting(find_kept(folder), choice)
    return 0


# ---------------------------------------------------------------------------------------- one attempt


def _show(folder: Path, attempt: int, choice: _Choice, printer: _Printer, *, follows: bool) -> None:
    """Print what one start of the job printed; following, until it or the job is over."""
    zone_ns = time.localtime().tm_gmtoff * 10**9
    known: set[Path] = set()
    sources: list[TimedFile] = []
    merger = Merger(0, window_ns=WINDOW_NS if choice.folds else 0)
    try:
        is_over = not follows
        held_due_s = 0.0
        while True:
            now_s = time.monotonic()
            if now_s >= held_due_s:
                held_due_s = now_s + _HELD_S
                is_held_now = is_held(folder, tries=1)
                found = _fitting(find_kept(folder, known=known), choice)
                is_over |= any(file.attempt > attempt for file in found) or not is_held_now
                for file in found:
                    if file.attempt == attempt:
                        known.add(file.path)
                        sources.append(TimedFile(file, local_zone_ns=zone_ns))
                        merger.add_source()
                if not follows and found:
                    _place_untimed(sources, choice)
            moved = _move(sources, merger, printer, is_over=is_over)
            if is_over and not moved:
                return
            if not moved:
                sys.stdout.flush()
                time.sleep(_POLL_S)
    finally:
        for source in sources:
            source.close()


def _move(sources: list[TimedFile], merger: Merger, printer: _Printer, *, is_over: bool) -> bool:
    """Read and print until nothing more is there now; whether anything was read."""
    moved = False
    is_at_end = [False] * len(sources)
    while True:
        moved |= read_ahead(merger, sources, is_at_end, is_over=is_over)
        first_ns = merger.first_ns()
        if first_ns is None:
            return moved
        if not is_over and first_ns > time.time_ns() - _HOLD_NS:
            return moved
        if any(not is_at_end[i] and merger.needs(i, first_ns) for i in range(len(sources))):
            continue
        folded = merger.take()
        assert folded is not None  # there is a first one
        printer.put(folded)


def _place_untimed(sources: list[TimedFile], choice: _Choice) -> None:
    """Files that have no times go by position: among those that have some, over the time they took."""
    timed = [source for source in sources if source.is_timed]
    untimed = [source for source in sources if not source.is_timed]
    if not untimed:
        return
    if choice.since_ns is not None:
        raise UsageError(
            "--since: the lines of this run have no times",
            hint="`distdbg run --redirects 3` keeps them with their times",
        )
    known = [ns for source in timed if (ns := source.first_ns()) is not None]
    ranks = format_ranks(sorted({source.file.rank for source in untimed}))
    how = "by their place in the file" if known else "line by line"
    _say(f"nothing tells when ranks {ranks} wrote their lines; they are merged {how}")
    if known:
        for source in untimed:
            source.span = (min(known), max(min(known), source.mtime_ns()))


# ---------------------------------------------------------------------------------------- what is shown


class _Printer:
    def __init__(self, choice: _Choice) -> None:
        self._choice = choice
        self._attempt = 0
        self._has_begun = False

    def begin(self, attempt: int) -> None:
        """What comes now is of another start of the job."""
        if self._has_begun and not self._choice.is_json:
            sys.stdout.write(f"-- attempt {attempt + 1} of the job --\n")
        self._has_begun = True
        self._attempt = attempt

    def put(self, line: Folded) -> None:
        choice = self._choice
        if choice.since_ns is not None and line.time_ns < choice.since_ns:
            return
        # What a terminal would show of a progress bar.
        text = line.text if choice.is_raw else line.text.rstrip("\r").rpartition("\r")[2]
        if choice.pattern is not None and not choice.pattern.search(text):
            return
        stream = "err" if line.stream is StdStreams.ERR else "out"
        if choice.is_json:
            is_time = line.time_ns > 10**17  # else it is a count of lines
            facts = {
                "time": line.time_ns / 1e9 if is_time else None,
                "attempt": self._attempt,
                "ranks": list(line.ranks),
                "stream": stream,
                "text": text,
            }
            sys.stdout.write(json.dumps(facts) + "\n")
            return
        where = format_ranks(line.ranks) + (" err" if line.stream is StdStreams.ERR else "")
        sys.stdout.write(f"[{where}] {text if choice.is_raw else show(text)}\n")


def show(text: str) -> str:
    """A line of a program as a terminal may have it: nothing in it is obeyed but tabs."""
    return "\t".join(map(printable, text.split("\t")))


def _say(words: str) -> None:
    sys.stderr.write(f"distdbg logs: {words}\n")


# ---------------------------------------------------------------------------------------- what is asked for


def _choose(chosen: argparse.Namespace) -> _Choice:
    ranks = None
    if chosen.rank is not None:
        try:
            ranks = frozenset(read_ranks(chosen.rank))
        except ValueError as error:
            raise UsageError(f"--rank {chosen.rank!r}: {error}", hint="write 0-3,7") from None
    pattern = None
    if chosen.grep is not None:
        try:
            pattern = re.compile(chosen.grep)
        except re.error as error:
            raise UsageError(
                f"--grep {chosen.grep!r} is not a regular expression: {error}"
            ) from None
    since_ns = None if chosen.since is None else read_since(chosen.since, time.time_ns())
    return _Choice(
        ranks=ranks,
        stream=_STREAMS.get(chosen.stream, StdStreams.ALL),
        since_ns=since_ns,
        pattern=pattern,
        folds=not chosen.no_fold,
        is_json=chosen.json,
        is_raw=chosen.raw,
    )


def read_since(text: str, now_ns: int, *, flag: str = "--since") -> int:
    """'10m' or '2026-11-20T12:00:00' as wall time."""
    if found := re.fullmatch(r"(\d+(?:\.\d+)?) *(s|min|m|h|d)", text.strip()):
        return now_ns - int(float(found[1]) * _UNITS[found[2]] * 1e9)
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1e9)
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"{flag} {text!r} is no time", hint="write 30s, 10m, 2h or 2026-11-20T12:00:00"
        ) from None


def _fitting(files: list[KeptFile], choice: _Choice) -> list[KeptFile]:
    return [
        file
        for file in files
        if file.stream & choice.stream and (choice.ranks is None or file.rank in choice.ranks)
    ]


def _keeps_none(folder: Path) -> bool:
    """Whether ranks have started and nothing of them is kept."""
    return any(folder.rglob("rank*.ddr")) and not find_kept(folder)


def _nothing_kept(folder: Path) -> UsageError:
    kept = find_kept(folder)
    if kept:
        ranks = format_ranks(sorted({file.rank for file in kept}))
        return UsageError(f"{folder} keeps no such output; it has some of ranks {ranks}")
    if attempts(folder) == [folder] and not any(folder.rglob("rank*.ddr")):
        return UsageError(f"{folder}: no run found here")
    return UsageError(
        f"{folder} keeps no output: its ranks wrote to the launcher's own terminal or files",
        hint="`distdbg run --redirects 3` keeps it in files, `--tee 3` shows it as well",
    )
