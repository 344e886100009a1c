"""`python -m benchmarks.top`: how quick the dashboard is, and what it costs.

keys      4,096 ranks on 512 hosts: each key from its press until the terminal has all of the new screen
drawing   the timeline of 64 ranks, 200 columns wide: one drawing, without the terminal
replay    a run of 4,096 ranks x 1,000 ops: opened, scrubbed through, its verdict
start     `distdbg top --once` on a small finished run, and the first frame in a pseudo terminal
cost      share of a core while 64 ranks change four times a second, in a pseudo terminal

The jobs are made in memory (`tests.support.planted`); nothing is measured through an agent here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.table import align

HEADER = ("what", "measured", "target", "verdict")
KEY_S = 0.1
START_S = 0.7
SHARE = 0.05
DRAW_S = 0.03
OPEN_S = 30.0
SCRUB_S = 1.0
#: Keys of the ranks view, in an order in which each does something.
KEYS = (
    "down", "pagedown", "end", "home", "greater_than_sign", "greater_than_sign", "i", "F", "F",
    "h", "pagedown", "end", "greater_than_sign", "greater_than_sign", "h", "enter", "escape",
    "t", "plus", "down", "pagedown", "0", "w", "g", "o", "f", "r",
)  # fmt: skip
_KEY_BYTES = {
    "down": b"\x1b[B", "pagedown": b"\x1b[6~", "end": b"\x1b[F", "home": b"\x1b[H",
    "greater_than_sign": b">", "enter": b"\r", "escape": b"\x1b", "plus": b"+", "slash": b"/",
}  # fmt: skip
#: After so long without output a key has done what it does.
_QUIET_S = 0.04
Row = tuple[str, str, str, str]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.top", description=__doc__)
    parser.add_argument("--ranks", type=int, default=4096, help="a multiple of 8")
    parser.add_argument("--ops", type=int, default=1000, help="of the replay; a multiple of 10")
    parser.add_argument("--parts", default="keys,drawing,replay,start,cost")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args(argv)
    if chosen.measure == "app":
        _show_changing(int(os.environ.get("BENCH_RANKS", "64")))
        return 0
    if chosen.measure:
        print(json.dumps(PARTS[chosen.measure](chosen.ranks, chosen.ops)))
        return 0
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print()
    rows: list[Row] = []
    for part in chosen.parts.split(","):
        print(f"{part} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.top", "--measure", part]
        command += [f"--ranks={chosen.ranks}", f"--ops={chosen.ops}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=900)
        rows += [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]
    print(align([HEADER, *rows], left=(0, 3)))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    return int(any(row[3] == "MISSED" for row in rows))


def _row(what: str, seconds: float, target: float | None) -> Row:
    def text(value: float) -> str:
        return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"

    met = "" if target is None else "met" if seconds <= target else "MISSED"
    return what, text(seconds), "" if target is None else text(target), met


# ------------------------------------------------------------------------------- keys


def measure_keys(ranks: int, ops: int) -> list[Row]:
    """From the press of a key until the terminal has all that changes; and what a change of the job costs."""
    took: dict[str, list[float]] = {}
    command = [sys.executable, "-m", "benchmarks.top", "--measure", "app"]
    with _Terminal(command, view="ranks", ranks=str(ranks), still="1") as terminal:
        terminal.read_until(b"palette", 60)
        terminal.read_for(1.0)
        for _ in range(2):
            for key in KEYS:
                found = terminal.press(key)
                if (
                    key != "escape"
                ):  # a terminal cannot tell it from the begin of another key at once
                    took.setdefault(f"key {key}", []).append(found)
        for text in ("n01", "!waiting"):
            for letter in ("/", *text):
                terminal.press(letter)
            took.setdefault("a filter", []).append(terminal.press("enter"))
            terminal.press("escape")
    worst = sorted(((max(times), key) for key, times in took.items()), reverse=True)
    rows = [_row(f"{ranks:,} ranks: the slowest is {worst[0][1]}", worst[0][0], KEY_S)]
    rows += [_row(f"  {key}", slow, KEY_S) for slow, key in worst[1:4]]
    every = [one for times in took.values() for one in times]
    rows.append(_row("  median of all keys", median(every), KEY_S))
    rows.append(_row("  all ranks have changed: drawn anew", _tick_s(ranks), KEY_S))
    return rows


def _tick_s(ranks: int) -> float:
    """The longest that a change keeps a key waiting."""
    from distdbg.tui.app import TopApp

    feed = _PlantedFeed(ranks)
    app = TopApp(feed)
    took: list[float] = []

    async def script() -> None:
        async with app.run_test(size=(200, 60)) as pilot:
            await pilot.pause(0.5)
            for turn in range(9):
                feed.change(turn)
                began = time.perf_counter()
                app.tick()
                took.append(time.perf_counter() - began)
                await pilot.pause(0.12)

    asyncio.run(script())
    feed.close()
    return median(took)


class _PlantedFeed:
    """A feed that shows a planted job as if it lived."""

    def __init__(self, ranks: int) -> None:
        from distdbg.tui.replay_feed import ReplayFeed
        from distdbg.view.feed import Topic
        from distdbg.view.snapshot import FeedLink
        from tests.support.planted import plant

        session = plant(ranks, 100, "missing rank")
        now_ns = time.time_ns()
        shift = now_ns - session.now_ns
        session.now_ns = now_ns
        for log in session.ranks.values():
            log.offset_ns = shift
        self._replay = ReplayFeed(session)
        self._replay.want(frozenset(Topic))
        due = time.monotonic() + 60
        while not (self._replay.latest().ops and self._replay.latest().verdict):
            time.sleep(0.05)  # it works in a thread
            if time.monotonic() > due:
                raise TimeoutError("the planted job was not diagnosed within a minute")
        self._snapshot = replace(self._replay.latest(), link=FeedLink.LIVE)
        self.title, self.can_change, self.address = "planted", True, ""

    def change(self, turn: int) -> None:
        """All ranks have done something."""
        rows = {
            rank: replace(row, cpu=(rank * 7 + turn) % 100 / 100, rss_nbytes=rank * 1000 + turn)
            for rank, row in self._snapshot.ranks.items()
        }
        self._snapshot = replace(self._snapshot, at=time.time(), ranks=rows)

    def latest(self) -> Any:
        return self._snapshot

    def want(self, topics: Any) -> None:
        pass

    def span(self) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replay, name)


# ------------------------------------------------------------------------------- drawing


def measure_drawing(ranks: int, ops: int) -> list[Row]:
    """All lines of the timeline, once."""
    from distdbg.tui.app import TopApp
    from distdbg.tui.time_lanes import TimeLanes

    rows = []
    for count in (64, 400):
        feed = _planted_replay(64, count)
        app = TopApp(feed, view="timeline")
        took: list[float] = []

        async def script(app: TopApp = app, took: list[float] = took) -> None:
            async with app.run_test(size=(223, 72)) as pilot:
                await pilot.pause(0.3)
                lanes = app.query_one(TimeLanes)
                for _ in range(20):
                    lanes._forget()
                    began = time.perf_counter()
                    for y in range(65):
                        lanes.render_line(y)
                    took.append(time.perf_counter() - began)

        asyncio.run(script())
        feed.close()
        what = f"timeline of 64 ranks x 200 columns, {64 * count:,} ops in sight"
        rows.append(_row(what, median(took), DRAW_S if count == 64 else None))
    return rows


def _planted_replay(ranks: int, ops: int, fault: str = "missing rank") -> Any:
    from distdbg.tui.replay_feed import ReplayFeed
    from tests.support.planted import plant

    session = plant(ranks, ops, fault)
    shift = time.time_ns() - session.now_ns
    session.now_ns += shift
    for log in session.ranks.values():
        log.offset_ns = shift
    return ReplayFeed(session)


# ------------------------------------------------------------------------------- replay


def measure_replay(ranks: int, ops: int) -> list[Row]:
    """A large run from its files: opened, moved through, judged."""
    from benchmarks.made_run import make_run
    from distdbg.cli.replayed_run import open_replay
    from distdbg.view.feed import Topic

    with tempfile.TemporaryDirectory(prefix="distdbg-top-") as folder:
        make_run(Path(folder), ranks=ranks, ops=ops, fault="missing", at=17)
        began = time.perf_counter()
        feed = open_replay(Path(folder))
        opened = time.perf_counter() - began
        _until(lambda: feed.latest().verdict is not None, 120)
        judged = time.perf_counter() - began
    times = feed.span()
    assert times is not None
    took = []
    for part in (0.1, 0.5, 0.2, 0.8, 0.51, 0.52, 0.53):
        at = times[0] + part * (times[1] - times[0])
        before = feed.latest()
        began = time.perf_counter()
        feed.seek(at)
        _until(lambda before=before: feed.latest() is not before, 30)  # type: ignore[misc]
        took.append(time.perf_counter() - began)
    began = time.perf_counter()
    feed.bars(list(range(64)), *times)
    bars = time.perf_counter() - began
    began = time.perf_counter()
    feed.want(frozenset({Topic.OPS}))
    _until(lambda: feed.latest().ops, 120)
    table = time.perf_counter() - began
    feed.close()
    name = f"replay of {ranks} ranks x {ops} ops"
    return [
        _row(f"{name}: opened from files", opened, OPEN_S),
        _row("  and judged", judged, OPEN_S),
        _row("  another moment, median", median(took), SCRUB_S),
        _row("  another moment, slowest", max(took), SCRUB_S),
        _row("  first bars of 64 ranks, all of the run", bars, None),
        _row("  its table of ops", table, None),
    ]


def _until(is_so: Callable[[], object], limit_s: float) -> None:
    due = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > due:
            raise TimeoutError(f"not within {limit_s:g} s")
        time.sleep(0.002)  # it works in a thread


# ------------------------------------------------------------------------------- start and cost


def measure_start(ranks: int, ops: int) -> list[Row]:
    """Fresh processes, the best of five: what the machine does beside is not ours."""
    from benchmarks.made_run import make_run

    with tempfile.TemporaryDirectory(prefix="distdbg-top-") as folder:
        make_run(Path(folder), ranks=8, ops=200, fault="dead", at=5)
        command = [sys.executable, "-m", "distdbg.cli.main", "top"]
        command = [sys.executable, "-c", _TOP, "top"]
        once, first = [], []
        for _ in range(5):
            began = time.perf_counter()
            subprocess.run(
                [*command, "--once", folder], check=True, stdout=subprocess.DEVNULL, timeout=60
            )
            once.append(time.perf_counter() - began)
            first.append(_first_frame([*command, folder]))
    return [
        _row("top --once of a small finished run", min(once), None),
        _row("top in a pseudo terminal, until its first frame", min(first), START_S),
    ]


_TOP = "import sys; from distdbg.cli.main import main; sys.exit(main(sys.argv[1:]))"


def _first_frame(command: Sequence[str]) -> float:
    """Until the footer is there."""
    began = time.perf_counter()
    with _Terminal(command) as terminal:
        terminal.read_until(b"palette", 20)
        return time.perf_counter() - began


def measure_cost(ranks: int, ops: int) -> list[Row]:
    """Core time of the process over some seconds, for each of two views."""
    rows = []
    for view in ("ranks", "timeline"):
        command = [sys.executable, "-m", "benchmarks.top", "--measure", "app"]
        with _Terminal(command, view=view) as terminal:
            terminal.read_until(b"palette", 20)
            terminal.read_for(2.0)
            before, began = terminal.core_s(), time.perf_counter()
            terminal.read_for(8.0)
            share = (terminal.core_s() - before) / (time.perf_counter() - began)
        verdict = "met" if share <= SHARE else "MISSED"
        what = f"64 changing ranks, {view} view: share of a core"
        rows.append((what, f"{share:.1%}", f"{SHARE:.0%}", verdict))
    return rows


class _Terminal:
    """A process in a pseudo terminal of 120 x 40."""

    def __init__(self, command: Sequence[str], **environ: str) -> None:
        more = {f"BENCH_{name.upper()}": value for name, value in environ.items()}
        self._env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **more}
        self._command = list(command)

    def __enter__(self) -> _Terminal:
        import fcntl
        import struct
        import termios

        self._fd, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self._process = subprocess.Popen(
            self._command, stdin=child, stdout=child, stderr=child, env=self._env,
            start_new_session=True,
        )  # fmt: skip
        os.close(child)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5)
        os.close(self._fd)

    def read_until(self, wanted: bytes, limit_s: float) -> None:
        seen, due = b"", time.monotonic() + limit_s
        while wanted not in seen:
            seen += self._read(due)
            if time.monotonic() > due:
                raise TimeoutError(seen[-500:].decode(errors="replace"))

    def press(self, key: str) -> float:
        """How long it takes until nothing more comes of it; rests then, as redraws are paced."""
        began = last = time.perf_counter()
        os.write(self._fd, _KEY_BYTES.get(key, key.encode()))
        due = time.monotonic() + 2.0
        while time.monotonic() < due:
            quiet = time.monotonic() + (2.0 if last == began else _QUIET_S)
            if not self._read(quiet):
                break
            last = time.perf_counter()
        self.read_for(0.15)
        return last - began

    def read_for(self, seconds: float) -> None:
        due = time.monotonic() + seconds
        while time.monotonic() < due:
            self._read(due)

    def _read(self, due: float) -> bytes:
        ready, _, _ = select.select([self._fd], [], [], max(due - time.monotonic(), 0))
        try:
            return os.read(self._fd, 1 << 16) if ready else b""
        except OSError:
            raise RuntimeError(f"{self._command} has ended") from None

    def core_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _show_changing(ranks: int) -> None:
    """The dashboard over ranks that change four times a second; ended by a signal."""
    from distdbg.tui.app import TopApp
    from distdbg.view.snapshot import Bar

    class Changing(_PlantedFeed):
        def __init__(self, ranks: int) -> None:
            super().__init__(ranks)
            self._due, self._turn = 0.0, 0
            self._lanes: dict[int, list[Bar]] = {rank: [] for rank in range(ranks)}

        def latest(self) -> Any:
            now = time.time()
            if now >= self._due and not os.environ.get("BENCH_STILL"):
                self._due, self._turn = now + 0.25, self._turn + 1
                self._go_on(now)
                self.change(self._turn)
            return self._snapshot

        def _go_on(self, now: float) -> None:
            """Each rank has done five more ops."""
            for lane in self._lanes.values():
                for part in range(5):
                    at, number = now - 0.25 + part * 0.05, 5 * self._turn + part
                    lane.append(
                        Bar(
                            number=number, kind="all_reduce", name=f"all_reduce #{number}",
                            group="0", seq=number, issued=at, started=at + 0.01, ended=at + 0.02,
                        )
                    )  # fmt: skip
                del lane[:-400]

        def bars(self, wanted: Sequence[int], begin: float, end: float) -> dict[int, list[Bar]]:
            return {rank: self._lanes[rank] for rank in wanted}

    began = time.time()
    is_still = bool(
        os.environ.get("BENCH_STILL")
    )  # then no age grows: only keys change what is seen
    app = TopApp(
        Changing(ranks),
        view=os.environ.get("BENCH_VIEW", "ranks"),
        now=(lambda: began) if is_still else time.time,
    )
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    app.run()


PARTS: dict[str, Callable[[int, int], list[Row]]] = {
    "keys": measure_keys,
    "drawing": measure_drawing,
    "replay": measure_replay,
    "start": measure_start,
    "cost": measure_cost,
}


if __name__ == "__main__":
    sys.exit(main())
