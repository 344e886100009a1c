"""`distdbg top`: a job while it runs, or a run that is over, in a dashboard.

no RUN              the newest live run of this user on this host
RUN                 a live run by its name or its beginning; else a finished one, or a folder: a replay
HOST:PORT           an agent that listens there; the run's token is in DISTDBG_TOKEN or DISTDBG_TOKEN_FILE
ssh://HOST[/RUN]    the same on another host, over ssh
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import UsageError
from distdbg.tui.terminal import require_terminal

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp
    from distdbg.tui.feed import Feed

_SIZE: Final = re.compile(r"(\d{2,4})x(\d{2,4})")
_ELSEWHERE: Final = re.compile(r"ssh://.*|[^/]+:\d{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a command line asks for."""

    run: str | None
    is_replay: bool
    record: Path | None
    is_readonly: bool
    is_once: bool
    is_web: bool
    port: int
    view: str
    theme: str | None
    size: tuple[int, int] | None
    svg: Path | None
    is_forced: bool
    attempt: int | None


def main(argv: Sequence[str]) -> int:
    """Show it until the user leaves."""
    choice = read_choice(argv)
    if choice.is_web:
        return _serve(argv)
    if not choice.is_once:
        require_terminal(sys.stdin.isatty() and sys.stdout.isatty(), os.environ)
    feed = open_feed(choice)
    try:
        return _print_once(feed, choice) if choice.is_once else _show(feed, choice)
    finally:
        feed.close()


def read_choice(argv: Sequence[str]) -> Choice:
    """UsageError for flags that do not go together."""
    parser = argparse.ArgumentParser(
        prog="distdbg top",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="which job; see above")
    parser.add_argument(
        "--replay", action="store_true", help="from the records, also of a job that lives"
    )
    parser.add_argument("--record", metavar="FILE", type=Path, help="keep what is shown in FILE")
    parser.add_argument(
        "--readonly", action="store_true", help="without the keys that change the job"
    )
    parser.add_argument("--once", action="store_true", help="print one frame, and that is all")
    parser.add_argument("--web", action="store_true", help="in a browser, at 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="of --web; any free one when not given")
    parser.add_argument("--view", default="ranks", metavar="NAME", help="the first to be shown")
    parser.add_argument(
        "--theme", metavar="NAME", help="a theme of textual: textual-light, nord ..."
    )
    parser.add_argument("--size", metavar="COLUMNSxROWS", help="of --once: 80x24, 200x60")
    parser.add_argument("--svg", metavar="FILE", type=Path, help="of --once: a picture in FILE")
    parser.add_argument(
        "--attempt", metavar="N", type=int, help="of a replay: which start of the ranks; the last"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a FILE of --record or --svg that is there"
    )
    chosen = parser.parse_args(argv)
    size = None
    if chosen.size is not None:
        found = _SIZE.fullmatch(chosen.size)
        if found is None:
            raise UsageError(f"--size {chosen.size!r} is no size", hint="write 120x40")
        size = (int(found[1]), int(found[2]))
    if chosen.svg is not None and not chosen.once:
        raise UsageError("--svg goes with --once")
    if chosen.once and chosen.web:
        raise UsageError("--once and --web do not go together")
    if chosen.replay and chosen.record is not None:
        raise UsageError("--replay shows what has been recorded; --record is for a job that lives")
    return Choice(
        run=chosen.run,
        is_replay=chosen.replay,
        record=chosen.record,
        is_readonly=chosen.readonly,
        is_once=chosen.once,
        is_web=chosen.web,
        port=chosen.port,
        view=read_view(chosen.view),
        theme=chosen.theme,
        size=size,
        svg=chosen.svg,
        is_forced=chosen.force,
        attempt=chosen.attempt,
    )


def open_feed(choice: Choice) -> Feed:
    """Where what is shown comes from. DistError when there is no such job."""
    if choice.is_replay or choice.attempt is not None:
        return _open_replay(choice)
    feed = _open_any(choice)
    if choice.record is None:
        return feed
    from distdbg.tui.recording.writer import RecordingFeed

    try:
        return RecordingFeed(feed, choice.record, is_forced=choice.is_forced)
    except BaseException:
        feed.close()
        raise


def _open_replay(choice: Choice) -> Feed:
    from distdbg.cli.replayed_run import open_replay

    return open_replay(find_run(choice.run), attempt=choice.attempt)


def _open_any(choice: Choice) -> Feed:
    """A live job where there is one of this name, else what is left of one that is over."""
    from distdbg.agent.feed.doors import RunDoor, WayDoor, newest_run
    from distdbg.agent.live_feed import LiveFeed
    from distdbg.agent.live_runs import agents_of, find_live_runs
    from distdbg.record.host import host_name

    text = choice.run
    if text is not None and _ELSEWHERE.fullmatch(text):
        from distdbg.agent.addresses import find_way

        return LiveFeed(WayDoor(find_way(text), text))
    runs = find_live_runs(host_name())
    is_name = text is not None and "/" not in text
    live = newest_run(
        [run for run in runs if text is None or (is_name and run.run.startswith(text))]
    )
    if live is not None and (text is None or not Path(text).exists()):
        return LiveFeed(RunDoor(agents_of(runs, live) or [live]))
    try:
        return _open_replay(choice)
    except UsageError as error:
        if text is not None:
            raise
        raise UsageError(
            "no job of this user lives on this host, and there is none that is over",
            hint="`distdbg run` starts one; `distdbg top HOST:PORT` and `ssh://HOST` show others",
        ) from error


# ---------------------------------------------------------------------------------------- what shows it


def _show(feed: Feed, choice: Choice) -> int:
    app = _make_app(feed, choice)
    app.run()
    if app.troubles.path is not None:
        sys.stderr.write(f"what went wrong in the dashboard is in {app.troubles.path}\n")
    return app.return_code or 0


def _make_app(feed: Feed, choice: Choice) -> TopApp:
    from distdbg.tui.app import TopApp

    return TopApp(
        feed, view=choice.view, readonly=choice.is_readonly, theme=read_theme(choice.theme)
    )


def read_view(name: str) -> str:
    """A view by its name or the beginning of it; UsageError for none."""
    from distdbg.tui.views import VIEWS

    titles = [view.title for view in VIEWS]
    fitting = [title for title in titles if title.startswith(name)]
    if name not in titles and len(fitting) != 1:
        raise UsageError(f"there is no view {name!r}", hint=f"there are {', '.join(titles)}")
    return name if name in titles else fitting[0]


def read_theme(name: str | None) -> str | None:
    """A theme of textual; UsageError for one that it does not have."""
    if name is None:
        return None
    from textual.theme import BUILTIN_THEMES

    known = {"dark": "textual-dark", "light": "textual-light"}.get(name, name)
    if known not in BUILTIN_THEMES:
        raise UsageError(
            f"there is no theme {name!r}", hint=f"there are {', '.join(sorted(BUILTIN_THEMES))}"
        )
    return known


def _print_once(feed: Feed, choice: Choice) -> int:
    from distdbg.cli.one_frame import print_frame

    return print_frame(
        _make_app(feed, choice), size=choice.size, svg=choice.svg, is_forced=choice.is_forced
    )


def _serve(argv: Sequence[str]) -> int:
    from distdbg.tui.web import command_of, serve

    port = read_choice(argv).port
    return serve(
        command_of(sys.executable, argv),
        port=port,
        say=lambda url: print(f"the dashboard is at {url}; Ctrl-C ends it", flush=True),
    )
