"""`distdbg top`: a job while it runs, or what is left of one, in a dashboard.

no RUN              the newest running job of this user on this host; without one: the latest that is over
RUN                 a live run by its name or its beginning, else one that is over, or a folder or file
HOST:PORT           an agent that listens; the token of its run is taken from DISTDBG_TOKEN
ssh://HOST[/RUN]    a run on another host, through ssh
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.folders import attempt_number

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp
    from distdbg.view.feed import Feed

#: How long the agent of a job that has just begun may take to answer.
_BEGINNING_S: Final = 3.0
_ELSEWHERE: Final = re.compile(r"[a-z]+://.*|[^/:]+:\d{1,5}|\[[^/]+\]:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopArguments:
    run: str | None = None
    is_replay: bool = False
    attempt: int | None = None
    record: Path | None = None
    svg: Path | None = None
    is_forced: bool = False
    is_readonly: bool = False
    is_once: bool = False
    is_web: bool = False
    port: int = 0
    view: str = "ranks"
    theme: str | None = None
    size: tuple[int, int] | None = None


def main(argv: Sequence[str]) -> int:
    """Show it until the user leaves."""
    choice = read_choice(argv)
    if choice.is_web:
        return _serve(argv, choice)
    if not choice.is_once:
        from distdbg.tui.terminal import require_terminal

        require_terminal(sys.stdin.isatty() and sys.stdout.isatty(), os.environ)
    feed = open_feed(choice)
    try:
        if choice.is_once:
            code = print_frame(
                make_app(feed, choice),
                size=choice.size,
                svg=choice.svg,
                is_forced=choice.is_forced,
            )
            return code or _reached(feed)
        app = make_app(feed, choice)
        app.run()
        if app.troubles.path is not None:
            sys.stderr.write(f"what went wrong in the dashboard is in {app.troubles.path}\n")
        return app.return_code or 0
    finally:
        feed.close()
        if choice.record is not None:
            _say_what_became_of(feed)


def _reached(feed: Feed) -> int:
    """The exit code of a frame: 0 where anything was heard of the job."""
    from distdbg.view.snapshot import FeedLink

    snapshot = feed.latest()
    if snapshot.link is not FeedLink.JOINING:
        return 0
    raise DistNetworkError(snapshot.link_why or f"no answer from {feed.title}")


def _say_what_became_of(feed: Feed) -> None:
    from distdbg.tui.recording.writer import RecordingFeed

    if isinstance(feed, RecordingFeed):
        sys.stderr.write(f"{feed.said}\n")


# ---------------------------------------------------------------------------------------- what is asked for


def read_choice(argv: Sequence[str]) -> TopArguments:
    """UsageError for flags that do not go together."""
    parser = argparse.ArgumentParser(
        prog="distdbg top",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="which job; see above")
    parser.add_argument("--view", default="ranks", metavar="NAME", help="the first to be shown")
    parser.add_argument(
        "--readonly", action="store_true", help="without the keys that change the job"
    )
    parser.add_argument(
        "--replay", action="store_true", help="from the records alone, also of a running job"
    )
    parser.add_argument("--attempt", type=int, metavar="N", help="of --replay: start N, from 0")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep what is seen in FILE")
    parser.add_argument("--once", action="store_true", help="print one frame, and that is all")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="of --once: a picture in FILE")
    parser.add_argument("--size", metavar="COLUMNSxLINES", help="of --once: 80x24, 200x60")
    parser.add_argument("--web", action="store_true", help="in a browser, at 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="of --web; a free one when not given")
    parser.add_argument("--theme", metavar="NAME", help="light, dark, or any theme of textual")
    parser.add_argument("--force", action="store_true", help="replace FILE if it already exists")
    chosen = parser.parse_args(argv)
    _refuse_pairs(chosen)
    size = None
    if chosen.size is not None:
        from distdbg.tui.once import parse_size

        size = parse_size(chosen.size)
    return TopArguments(
        run=chosen.run,
        is_replay=chosen.replay or chosen.attempt is not None,
        attempt=chosen.attempt,
        record=chosen.record,
        svg=chosen.svg,
        is_forced=chosen.force,
        is_readonly=chosen.readonly,
        is_once=chosen.once or chosen.svg is not None,
        is_web=chosen.web,
        port=chosen.port,
        view=read_view(chosen.view),
        theme=read_theme(chosen.theme),
        size=size,
    )


def _refuse_pairs(chosen: argparse.Namespace) -> None:
    is_once = chosen.once or chosen.svg is not None
    if is_once and chosen.web:
        raise UsageError("--once prints a frame, --web serves a page: one of them")
    if chosen.size is not None and not is_once:
        raise UsageError("--size is for --once: a terminal has a size of its own")
    if chosen.port and not chosen.web:
        raise UsageError("--port is for --web")
    if chosen.record is not None and (chosen.replay or chosen.attempt is not None or is_once):
        raise UsageError("--record keeps what top shows of a running job")


def read_view(name: str) -> str:
    """A view by its name or the beginning of it; UsageError for none."""
    from distdbg.tui.views import VIEWS

    titles = [view.title for view in VIEWS]
    fitting = [title for title in titles if title.startswith(name)]
    if name in titles:
        return name
    if len(fitting) != 1:
        raise UsageError(f"--view {name}: there is none", hint=f"there are {', '.join(titles)}")
    return fitting[0]


def read_theme(name: str | None) -> str | None:
    """A theme of textual; UsageError for one that it does not have."""
    if name is None:
        return None
    from textual.theme import BUILTIN_THEMES

    known = {"dark": "textual-dark", "light": "textual-light"}.get(name, name)
    if known not in BUILTIN_THEMES:
        there = ", ".join(sorted(BUILTIN_THEMES))
        raise UsageError(f"--theme {name}: there is none", hint=f"there are {there}")
    return known


# ---------------------------------------------------------------------------------------- what is shown


def open_feed(choice: TopArguments) -> Feed:
    """Where what is shown comes from. DistError when there is no such job."""
    if choice.is_replay:
        return _replay(find_run(choice.run), choice.attempt)
    feed = _open_any(choice.run)
    if choice.record is None:
        return feed
    from distdbg.tui.recording.writer import RecordingFeed

    try:
        return RecordingFeed(feed, choice.record, is_forced=choice.is_forced)
    except BaseException:
        feed.close()
        raise


def _open_any(text: str | None) -> Feed:
    """A live job where there is one of this name, else what is left of one that is over."""
    from distdbg.client.feed.connections import RemoteRoute, RunRoute, newest_run
    from distdbg.client.live_feed import LiveFeed
    from distdbg.client.live_runs import agents_of, choose_run, find_live_runs
    from distdbg.record.host import host_name

    is_path = text is not None and os.path.exists(text)
    if text is not None and not is_path and _ELSEWHERE.fullmatch(text):
        from distdbg.client.ways import find_way

        return LiveFeed(RemoteRoute(find_way(text), text))
    by = time.monotonic() + _BEGINNING_S
    while True:
        runs = find_live_runs(host_name())
        if text is None:
            live = newest_run(runs)
        else:
            name = _run_in(Path(text)) if is_path else text
            fits = bool(name) and any(run.run.startswith(name) for run in runs)
            live = choose_run(runs, name) if fits else None
        if live is not None:
            return LiveFeed(RunRoute(agents_of(runs, live) or [live]))
        if time.monotonic() >= by or not _is_beginning(text):
            break
        time.sleep(0.05)
    try:
        return _replay(find_run(text), None)
    except UsageError as error:
        if text is not None:
            raise
        raise UsageError(
            "no job of this user on this host, neither running nor over",
            hint="`distdbg run` starts one; HOST:PORT and ssh://HOST show those of other hosts",
        ) from error


def _run_in(path: Path) -> str:
    """The run that writes into this folder now; '' when none does, or not seen so far."""
    from distdbg.diagnose.load.run_folder import run_name

    return run_name(path) if _is_held(path) else ""


def _is_held(path: Path) -> bool:
    """Whether it is the folder of a run, not of one start of it, that is not over."""
    from distdbg.client.feed.connections import is_folder_over

    return path.is_dir() and attempt_number(path) is None and is_folder_over(path) is False


def _is_beginning(text: str | None) -> bool:
    """Whether the run is held by a launcher whose agent is not there yet."""
    try:
        return _is_held(find_run(text))
    except UsageError:
        return False


def _replay(path: Path, attempt: int | None) -> Feed:
    from distdbg.cli.replayed_run import open_replay

    return open_replay(path, attempt=attempt)


def make_app(feed: Feed, choice: TopArguments) -> TopApp:
    from distdbg.tui.app import TopApp

    return TopApp(feed, view=choice.view, readonly=choice.is_readonly, theme=choice.theme)


def _serve(argv: Sequence[str], choice: TopArguments) -> int:
    from distdbg.tui.web import command_of, serve

    def say(url: str) -> None:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        sys.stderr.write("each tab is a dashboard; Ctrl-C ends them all\n")

    title = f"distdbg top {choice.run or ''}".strip()
    return serve(command_of(sys.executable, argv), port=choice.port, title=title, say=say)


def print_frame(
    app: TopApp,
    *,
    size: tuple[int, int] | None = None,
    svg: Path | None = None,
    is_forced: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Draw it and write it; returns the exit code.

    Colours are for terminals that want them; without `size` it is the terminal's, or 120x40.
    """
    from distdbg.tui.once import draw_once

    if svg is not None:
        _refuse_to_replace(svg, is_forced=is_forced)
    if size is None:
        found = shutil.get_terminal_size((120, 40)) if sys.stdout.isatty() else (120, 40)
        size = found[0], max(found[1] - 1, 6)  # the prompt comes below
    frame = draw_once(app, size=size, picture=svg is not None)
    if svg is not None:
        try:
            svg.write_text(frame.svg, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--svg {svg}: cannot be written: {error.strerror}") from None
        sys.stderr.write(f"Wrote {svg}\n")
        return 0
    wants_colour = sys.stdout.isatty() and not (os.environ if environ is None else environ).get(
        "NO_COLOR"
    )
    text = frame.ansi if wants_colour else frame.text
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except UnicodeEncodeError:  # a terminal without these letters
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk
        with suppress(OSError, ValueError):
            sys.stdout.close()
        raise UsageError(f"standard output cannot be written: {error.strerror}") from None
    return 0


def _refuse_to_replace(path: Path, *, is_forced: bool) -> None:
    if path.is_dir():
        raise UsageError(f"--svg {path}: is a folder", hint="give the name of a file")
    if path.is_file() and not is_forced:
        raise UsageError(f"--svg {path} already exists", hint="--force replaces it")
    if not path.parent.is_dir():
        raise UsageError(f"--svg {path}: there is no folder {path.parent}")
