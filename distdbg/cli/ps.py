"""`distdbg ps`: the running jobs of this user on this host, and the state of each rank."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from distdbg import config
from distdbg.cli.clock_words import is_paused, who_holds
from distdbg.cli.table import print_table
from distdbg.client.addresses import LocalAddress, parse_address
from distdbg.client.agent_client import AgentClient
from distdbg.client.live_runs import LiveRun, choose_run, find_live_runs, rows_without_agent
from distdbg.client.ways import AgentRoute, find_way
from distdbg.control.sockets import is_served
from distdbg.diagnose.finding import Severity
from distdbg.diagnose.verdict_document import read_verdict
from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.durations import duration_text, nbytes_text
from distdbg.record.folders import is_live_run, list_runs, nbytes_of, user_folder
from distdbg.record.host import host_name
from distdbg.record.printable import printable
from distdbg.record.run_summary import facts_of_run


def main(argv: Sequence[str]) -> int:
    """Print them; exit code 0 also when there are none."""
    parser = argparse.ArgumentParser(prog="distdbg ps", description=__doc__)
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="this one alone, also HOST:PORT or ssh://HOST/RUN; all of this host when not given",
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parser.add_argument(
        "--all",
        action="store_true",
        help="the runs of this host whose records are kept, with what they take and when they are removed",
    )
    chosen = parser.parse_args(argv)
    if chosen.all:
        if chosen.run is not None or chosen.json:
            parser.error("--all takes neither a run nor --json")
        _print_kept_runs()
        return 0
    runs = _join(_look_around(chosen.run))
    if chosen.json:
        sys.stdout.write(json.dumps({"runs": runs}, indent=1) + "\n")
        return 0
    if not runs:
        sys.stderr.write("no running job of this user on this host\n")
    for index, run in enumerate(runs):
        if index:
            sys.stdout.write("\n")
        print_table(_title(run), HEADS, rows_of(run["ranks"], run["causes"]))
        if run["verdict"]:
            sys.stdout.write(f"  verdict: {printable(run['verdict'])}\n")
    return 0


def _look_around(run: str | None) -> list[dict[str, Any]]:
    if not isinstance(parse_address(run), LocalAddress):
        with find_way(run) as way:
            return [_ask(way)]
    lives = find_live_runs(host_name())
    if run is not None:
        name = choose_run(lives, run).run
        lives = [live for live in lives if live.run == name]
    return [found for live in lives if (found := _look(live)) is not None]


def _ask(way: AgentRoute) -> dict[str, Any]:
    with way.connect_root() as client:
        return _say_all(client) | {"socket": None}


def _say_all(client: AgentClient) -> dict[str, Any]:
    found = dict(client.ask("about")) | {"ranks": client.ask("ranks")["ranks"]}
    return found | _verdict(client)


def _look(live: LiveRun) -> dict[str, Any] | None:
    if live.socket is not None:
        try:
            with live.connect() as client:
                return _say_all(client) | {"socket": str(live.socket)}
        except (DistNetworkError, UsageError):
            if not is_served(live.socket):
                return None  # it has just left
    about: dict[str, Any] = {
        "run": live.run,
        "host": live.host,
        "pid": None,
        "launcher_pid": None,
        "attempt": 0,
    }
    about |= {
        "socket": None,
        "control": None,
        "folder": str(live.folder) if live.folder else None,
        "verdict": "",
        "causes": [],
    }
    return about | {"ranks": rows_without_agent(live)}


def _verdict(client: AgentClient) -> dict[str, Any]:
    """The first line of the verdict that is true now, and the ranks that are the cause.

    Of a note the table says it all, and with newer ages: no line.
    """
    nothing: dict[str, Any] = {"verdict": "", "causes": []}
    try:
        answer = client.ask("verdict")
    except UsageError:  # an agent of an earlier version
        return nothing
    verdict = read_verdict(answer["verdict"])
    root = verdict.root if verdict is not None else None
    if root is None:
        return nothing
    line = "" if root.severity is Severity.NOTE else str(answer["lines"][0])
    return {"verdict": line, "causes": list(root.ranks)}


def _join(seen: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One entry per run: hosts that are played on this one have an agent each."""
    runs: dict[str, dict[str, Any]] = {}
    for found in sorted(seen, key=lambda one: len(one["ranks"]), reverse=True):
        known = runs.setdefault(found["run"], found)
        rows = {row["rank"]: row for row in known["ranks"]}
        # An agent knows its own host best.
        rows |= {r["rank"]: r for r in found["ranks"] if r["host"] == found["host"]}
        known["ranks"] = [rows[rank] for rank in sorted(rows)]
        if not known["verdict"]:
            known["verdict"], known["causes"] = found["verdict"], found["causes"]
    return [runs[name] for name in sorted(runs)]


def _title(run: dict[str, Any]) -> str:
    parts = [f"run {run['run']} on {run['host']}"]
    if run["attempt"]:
        parts.append(f"attempt {run['attempt'] + 1}")
    parts.append(f"agent {run['pid']}" if run["pid"] else "no agent answers")
    if run["launcher_pid"]:
        parts.append(f"launcher {run['launcher_pid']}")
    control = run["control"] or {}
    if is_paused(control):
        parts.append("paused")
    if holder := who_holds(control, run["ranks"]):
        parts.append(f"the clock is paused for {holder}")
    if control.get("abort"):
        parts.append(f"aborted: {control['abort'].get('what', '')}")
    return ", ".join(parts)


#: Marks the row of a cause, as in the dashboard.
_MARK = "!"
HEADS = ("", "rank", "host", "pid", "state", "for", "op, or where", "why")


def rows_of(rows: Sequence[dict[str, Any]], causes: Sequence[int]) -> list[tuple[str, ...]]:
    """The rows of the table: the ranks that are the cause marked, before all others."""
    first = sorted(rows, key=lambda row: row["rank"] not in causes)
    return [(_MARK if row["rank"] in causes else "", *row_cells(row)) for row in first]


def row_cells(row: dict[str, Any]) -> tuple[str, ...]:
    where = row["op"] + (f", {row['site']}" if row["site"] else "") if row["op"] else row["site"]
    return (
        str(row["rank"]),
        row["host"],
        str(row["pid"]),
        row["state"],
        duration_text(row["state_age_s"]),
        where,
        row["why"],
    )


_KEPT_HEADS = ("run", "state", "script", "ranks", "started", "size")


def _print_kept_runs() -> None:
    """The newest first; then what all of them take, and when they are removed."""
    folders = list_runs()[::-1]
    sizes = [nbytes_of(folder) for folder in folders]
    rows = [
        (
            folder.name,
            "running" if is_live_run(folder) else "ended",
            *facts_of_run(folder),
            nbytes_text(size),
        )
        for folder, size in zip(folders, sizes, strict=True)
    ]
    days = config.read_int("DISTDBG_RUNS_DAYS")
    most = nbytes_text(config.read_int("DISTDBG_RUNS_NBYTES"))
    age = f", and after {days} days (DISTDBG_RUNS_DAYS)" if days > 0 else ""
    count, take = ("1 run", "takes") if len(rows) == 1 else (f"{len(rows)} runs", "take")
    if rows:
        print_table(f"{count} in {user_folder()}", _KEPT_HEADS, rows)
    sys.stdout.write(
        f"{count} {take} {nbytes_text(sum(sizes))}; the oldest are removed beyond {most} "
        f"(DISTDBG_RUNS_NBYTES){age}, when the next run starts\n"
    )
