"""`distdbg analyze`: what went wrong with a job: the cause, its ranks and lines, and what to do."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import RecordError, UsageError
from distdbg.record.folders import attempts

if TYPE_CHECKING:
    from distdbg.diagnose.finding import Verdict
    from distdbg.diagnose.session import Session

#: On fewer columns each letter would be a line.
_MIN_WIDTH: Final = 40
#: A session and what is wrong with it; earlier attempts of the same job are one line each.
Diagnosed = tuple["Session", "Verdict"]


@dataclass(frozen=True, slots=True)
class AnalyzedJob:
    """What is shown as one: the last start in full."""

    last: Diagnosed
    earlier: tuple[Diagnosed, ...] = ()


def main(argv: Sequence[str]) -> int:
    """Print what was found; exit code 1 when something is more than a note."""
    chosen = _parser().parse_args(argv)
    if chosen.attempt is not None and chosen.attempt < 0:
        raise UsageError("--attempt counts from 0")
    if chosen.html is not None:
        _check_place(Path(chosen.html))
    paths = [find_run(path) for path in chosen.paths] or [find_run(None)]
    ranks = dict(_read_rank(text) for text in chosen.rank)
    return report(_read(paths, chosen.attempt, ranks), chosen)


def report(jobs: Sequence[AnalyzedJob], chosen: argparse.Namespace) -> int:
    """Write what was asked for; returns the exit code. The verdict comes first: a page may fail."""
    try:
        if chosen.json:
            _print_json(jobs)
        else:
            _print_text(jobs, verbose=chosen.verbose)
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk; what the buffer still has would raise again at the end
        with suppress(OSError, ValueError):
            sys.stdout.close()
        raise UsageError(f"standard output cannot be written: {error.strerror}") from None
    if chosen.html is not None:
        _write_html(jobs, Path(chosen.html), is_forced=chosen.force)
    return int(any(job.last[1].has_faults for job in jobs))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distdbg analyze",
        description=__doc__,
        epilog="Exit code 0: nothing was found; 1: something was. With several attempts of a job the last "
        "one is shown in full, and decides.",
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders of runs or their names, records, dumps and logs of other tools, or folders "
        "of those; not given: your newest run on this host",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of text")
    parser.add_argument("--html", metavar="FILE", help="write a page with timeline and graphs too")
    parser.add_argument(
        "--attempt",
        type=int,
        metavar="N",
        help="this attempt of a job that was restarted, from 0; not given: the last",
    )
    parser.add_argument(
        "--rank",
        action="append",
        default=[],
        metavar="FILE=RANK",
        help="whose dump FILE is, where its name does not end in the rank; may be repeated",
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="all evidence of all findings")
    parser.add_argument("--force", action="store_true", help="replace FILE if it already exists")
    return parser


def _read_rank(text: str) -> tuple[Path, int]:
    """'dumps/n04=3'."""
    path, _, number = text.rpartition("=")
    if not path or not number.isdecimal():
        raise UsageError(f"--rank {text}: FILE=RANK is expected", hint="--rank dumps/n04=3")
    return Path(path), int(number)


# ------------------------------------------------------------------------------------------ reading


def _read(
    paths: Sequence[Path], attempt: int | None, ranks: Mapping[Path, int]
) -> list[AnalyzedJob]:
    """Each job that is in these paths."""
    for path in paths:
        try:
            if path.is_dir():
                os.scandir(path).close()
            else:
                os.stat(path)
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}", path=str(path)) from None
    from distdbg.diagnose.load.open import open_paths
    from distdbg.diagnose.load.run_folder import group_runs, is_run, load_runs

    if attempt is not None:
        if not all(is_run(path) for path in paths):
            raise UsageError("--attempt is for folders of runs")
        chosen = [load_runs(folders, attempt=attempt) for folders in group_runs(paths)]
        return [AnalyzedJob(_diagnosed(session)) for session in chosen]
    jobs: list[AnalyzedJob] = []
    for session in open_paths(paths, ranks=ranks):
        found = _diagnosed(session)
        if jobs and _is_earlier(jobs[-1].last[0], session):
            before = jobs.pop()
            jobs.append(AnalyzedJob(found, (*before.earlier, before.last)))
        else:
            jobs.append(AnalyzedJob(found, tuple(_earlier(session))))
    return jobs


def _diagnosed(session: Session) -> Diagnosed:
    """Diagnose a session, with the hint that only the source gives."""
    from distdbg.diagnose.verdict import diagnose
    from distdbg.render.source_hint import with_source_hint
    from distdbg.render.source_line import source_of

    source = source_of(session, _own_folder())
    return session, with_source_hint(session, diagnose(session), source)


def _is_earlier(before: Session, session: Session) -> bool:
    """Whether they are two starts of one job, in a folder of logs or dumps."""
    is_one = before.source == session.source and before.run == session.run
    return is_one and session.attempts > 1 and before.attempt < session.attempt


def _earlier(session: Session) -> Iterator[Diagnosed]:
    """The starts before the last one of a run folder."""
    from distdbg.diagnose.load.run_folder import load_run
    from distdbg.diagnose.verdict import diagnose

    run = Path(session.source)
    if session.attempts < 2 or len(attempts(run)) < 2:
        return
    for number in range(session.attempt):
        with suppress(RecordError, UsageError):  # a start that left nothing
            before = load_run(run, attempt=number)
            yield before, diagnose(before)


# ------------------------------------------------------------------------------------------ writing


def _print_json(jobs: Sequence[AnalyzedJob]) -> None:
    """The document of one job, its last start; several jobs are in a list of 'sessions'."""
    from distdbg.render.source_line import source_of
    from distdbg.render.verdict_json import to_plain

    folder = _own_folder()
    documents = [to_plain(*job.last, source_of(job.last[0], folder)) for job in jobs]
    document = documents[0] if len(documents) == 1 else {"schema": 1, "sessions": documents}
    sys.stdout.write(json.dumps(document, indent=1, allow_nan=False) + "\n")
    sys.stdout.flush()


def _print_text(jobs: Sequence[AnalyzedJob], *, verbose: bool) -> None:
    from rich.console import Console

    from distdbg.render.text import attempt_lines, print_verdict

    console = Console(highlight=False)
    console.width = max(console.width, _MIN_WIDTH)
    folder = _own_folder()
    with console.capture() as captured:
        for index, job in enumerate(jobs):
            if index:
                console.print()
            for line in attempt_lines(job.earlier, job.last[1]):
                console.print(line)
            print_verdict(console, *job.last, verbose=verbose, folder=folder)
    text = captured.get()
    if not console.is_terminal:  # rich fills lines up
        text = "".join(f"{line.rstrip()}\n" for line in text.splitlines())
    sys.stdout.write(text)
    sys.stdout.flush()


def _own_folder() -> str:
    """Where the reader is; '' for a folder that was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _write_html(jobs: Sequence[AnalyzedJob], path: Path, *, is_forced: bool) -> None:
    from distdbg.export.output import SHARED, write_file
    from distdbg.render.html import to_html

    paths = [path]
    if len(jobs) > 1:  # page.html, page-2.html ...
        more = range(2, len(jobs) + 1)
        paths += [path.with_name(f"{path.stem}-{number}{path.suffix}") for number in more]
    for job, place in zip(jobs, paths, strict=True):
        page = to_html(*job.last, folder=_own_folder()).encode()
        _check_place(place)
        write_file(place, partial(_put, page), force=is_forced, flag="--html ", mode=SHARED)
        sys.stderr.write(f"Wrote {place}\n")


def _put(page: bytes, output: BinaryIO) -> None:
    output.write(page)


def _check_place(path: Path) -> None:
    """What is wrong with it whatever is found; a file that already exists costs nobody the verdict."""
    if path.is_dir():
        raise UsageError(f"--html {path}: is a folder", hint="give the name of a file")
    if not path.parent.is_dir():
        raise UsageError(f"--html {path}: there is no folder {path.parent}")
