"""`distdbg export`: a run in another tool's format, to look at it there."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import UsageError
from distdbg.export.formats import FORMATS, Format
from distdbg.record.rank_list import read_ranks

if TYPE_CHECKING:
    from distdbg.export.reading import OpenedRun, RunSelection

_STDOUT: Final = "-"
#: Progress is shown from then on, so often.
_PATIENCE_S: Final = 1.0
_EVERY_S: Final = 0.2
_MAX_LACKS: Final = 20


def main(argv: Sequence[str]) -> int:
    """Write the file; exit code 0 when it is there whole."""
    chosen = _parser().parse_args(argv)
    kind = _find_format(chosen.to)
    paths = [find_run(run) for run in chosen.runs or [None]]
    wanted = _choose(chosen)

    from distdbg.export.otel.collector import is_url
    from distdbg.export.output import write_file, write_folder
    from distdbg.export.reading import open_run

    writer = import_module(kind.module)
    if hasattr(writer, "check"):
        writer.check()
    progress = _Progress()
    run = open_run(paths, wanted, on_progress=progress.show)
    if kind.name == "otlp" and is_url(chosen.output):
        try:
            _send(run, chosen.output)
        finally:
            progress.end()
        return 0
    to_stdout = chosen.output == _STDOUT
    flag = "--output " if chosen.output else ""
    target = Path(chosen.output or f"{_file_name(run.name)}{kind.extension}")
    try:
        if kind.is_folder:
            if to_stdout:
                raise UsageError(f"--output -: {kind.name} is a folder of files")
            nbytes = write_folder(
                target, lambda at: writer.write(run, at), force=chosen.force, flag=flag
            )
        elif to_stdout:
            if sys.stdout.isatty() and not kind.is_text:
                raise UsageError(
                    f"--output -: {kind.name} is not for a terminal", hint="put it into a file"
                )
            writer.write(run, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            nbytes = None
        else:
            if os.path.isdir(target):
                target /= f"{_file_name(run.name)}{kind.extension}"
            nbytes = write_file(
                target, lambda to: writer.write(run, to), force=chosen.force, flag=flag
            )
    finally:
        progress.end()
    _say_what_is_shown(run, kind, None if to_stdout else target, nbytes)
    return 0


def _send(run: OpenedRun, url: str) -> None:
    from distdbg.export.otel.collector import OtlpCollector, read_headers
    from distdbg.export.otel.file import write

    headers = read_headers(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", ""))
    collector = OtlpCollector(url, headers)
    write(run, collector)
    for lack in run.lacks()[:_MAX_LACKS]:
        sys.stderr.write(f"{lack}\n")
    if collector.rejected:
        sys.stderr.write(f"{collector.url} rejected {collector.rejected:,} spans {collector.why}\n")
    sys.stderr.write(
        f"Sent {run.counted.ops:,} ops of {run.counted.ranks:,} ranks to {collector.url}\n"
    )


def _parser() -> argparse.ArgumentParser:
    width = max(len(kind.name) for kind in FORMATS)
    formats = "\n".join(f"  {kind.name:{width}}  {kind.about}" for kind in FORMATS)
    parser = argparse.ArgumentParser(
        prog="distdbg export",
        description=f"{__doc__}\n\n  distdbg export runs/0412 --to perfetto",
        epilog=f"formats:\n{formats}\n\nA running job is written as it is now.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "runs", nargs="*", metavar="RUN",
        help="folder or name of a run, or what each host has of it, or torch's dumps; the latest run",
    )  # fmt: skip
    parser.add_argument("--to", required=True, metavar="FORMAT", help="one of the formats below")
    parser.add_argument(
        "--output", "-o", metavar="PATH",
        help="where to write it (RUN.EXTENSION, here); -: stdout; spans also to http://HOST:4318",
    )  # fmt: skip
    parser.add_argument("--ranks", metavar="LIST", help="these ranks alone: 0-3,7")
    parser.add_argument(
        "--since", metavar="WHEN", help="from 30s, 10m, 2h before its end, or 2026-11-20T12:00:00"
    )
    parser.add_argument(
        "--until", metavar="WHEN", help="what was called before: 2026-11-20T12:00:00"
    )
    parser.add_argument("--attempt", type=int, metavar="N", help="this start of the job, from 0")
    parser.add_argument("--force", action="store_true", help="replace PATH if it already exists")
    return parser


def _find_format(name: str) -> Format:
    for kind in FORMATS:
        if kind.name == name:
            return kind
    there = ", ".join(kind.name for kind in FORMATS)
    raise UsageError(f"--to {name}: unknown format", hint=f"formats: {there}")


def _choose(chosen: argparse.Namespace) -> RunSelection:
    from distdbg.export.reading import RunSelection

    ranks = None
    if chosen.ranks is not None:
        try:
            ranks = frozenset(read_ranks(chosen.ranks))
        except ValueError:
            ranks = None
        if not ranks:
            raise UsageError(f"--ranks {chosen.ranks!r} are not ranks", hint="write 0-3,7")
    if chosen.attempt is not None and chosen.attempt < 0:
        raise UsageError("--attempt counts from 0")
    since_ns = last_ns = until_ns = None
    if chosen.since is not None:
        from distdbg.cli.logs import read_since

        if (at_ns := read_since(chosen.since, 0)) <= 0:
            last_ns = -at_ns
        else:
            since_ns = at_ns
    if chosen.until is not None:
        from distdbg.cli.logs import read_since

        if (until_ns := read_since(chosen.until, 0, flag="--until")) <= 0:
            raise UsageError(
                f"--until {chosen.until!r} is no time", hint="write 2026-11-20T12:00:00"
            )
    return RunSelection(
        ranks=ranks, since_ns=since_ns, last_ns=last_ns, until_ns=until_ns, attempt=chosen.attempt
    )


def _file_name(run: str) -> str:
    """The name of a run as that of a file; records may say anything."""
    return re.sub(r"[^\w.+@=-]", "_", run).lstrip(".")[:128] or "run"


def _say_what_is_shown(
    run: OpenedRun, kind: Format, target: Path | None, nbytes: int | None
) -> None:
    from distdbg.record.text import format_nbytes

    lacks = run.lacks()
    for lack in lacks[:_MAX_LACKS]:
        sys.stderr.write(f"{lack}\n")
    if len(lacks) > _MAX_LACKS:
        sys.stderr.write(f"and {len(lacks) - _MAX_LACKS:,} more of that kind\n")
    counted = run.counted
    what = f"{counted.ops:,} ops of {counted.ranks:,} rank{'' if counted.ranks == 1 else 's'}"
    if target is not None and nbytes is not None:
        sys.stderr.write(f"Wrote {target}: {what}, {format_nbytes(nbytes)}; {kind.about}\n")
    else:
        sys.stderr.write(f"Wrote {what}\n")


class _Progress:
    """One line on a terminal, when it takes long."""

    def __init__(self) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._due_s = time.monotonic() + _PATIENCE_S
        self._is_shown = False

    def show(self, done: int, there_are: int) -> None:
        now_s = time.monotonic()
        if self._is_wanted and now_s >= self._due_s:
            self._due_s = now_s + _EVERY_S
            self._is_shown = True
            sys.stderr.write(f"\r\x1b[K{done:,} of {there_are:,} ranks")
            sys.stderr.flush()

    def end(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
