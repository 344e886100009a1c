"""`distdbg break`: stop ranks of a running job at ops, without a change of its code.

distdbg break 'rank=3,kind=all_reduce'      arm a breakpoint in the only run, or in RUN
distdbg break                               which are armed, and who is stopped
distdbg break --clear 2                     clear number 2; --clear all: every one
distdbg break --continue 0,3                let stopped ranks go on; --continue all
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from distdbg.agent.breakpoint_orders import continue_ranks, ranks_with_sockets, without_rule
from distdbg.cli.table import print_table
from distdbg.client.agent_client import AgentError
from distdbg.client.live_runs import LiveRun, choose_run, find_live_runs, rows_without_agent
from distdbg.control.breakpoints import (
    FIELDS,
    Rule,
    breakpoints_to_plain,
    rules_from_page,
    rules_to_page,
)
from distdbg.control.page import ControlPage, read_page
from distdbg.errors import UsageError, format_ranks
from distdbg.record.durations import duration_text
from distdbg.record.host import host_name
from distdbg.record.printable import printable
from distdbg.record.rank_list import read_ranks
from distdbg.record.rank_state import RankState
from distdbg.record.run_summary import world_size_of

_ALL = "all"
Plain = dict[str, Any]


def main(argv: Sequence[str]) -> int:
    """Do what is asked, then print what is armed and who is stopped."""
    chosen = _parser().parse_args(argv)
    rule, run = _rule_and_run(chosen.words, chosen.run)
    asked = [name for name in ("list", "clear", "go_on") if getattr(chosen, name)]
    if (rule is not None and asked) or len(asked) > 1:
        raise UsageError("one thing at a time: a RULE, --list, --clear or --continue")
    if rule is not None:  # what is wrong with it is said before a run is looked for
        Rule.parse(rule)
    if chosen.clear:
        _id_of(chosen.clear)
    if chosen.go_on:
        _ranks_of(chosen.go_on)
    live = choose_run(find_live_runs(host_name()), run)
    said = (
        _with_agent(live, rule, chosen) if live.socket is not None else _alone(live, rule, chosen)
    )
    if chosen.json:
        sys.stdout.write(json.dumps({"run": live.run, **said}, indent=1) + "\n")
    else:
        _print(live, said)
    return 1 if said.get("failed") else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distdbg break",
        description="Stop ranks of a running job at ops, without a change of its code.",
        epilog="conditions, joined by commas: "
        + ", ".join(field.example for field in FIELDS.values())
        + ", skip=2, hits=1, on=mismatch|nan|timeout|exception|signal",
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RULE RUN",
        help="what to stop at; which run, if not the only one",
    )
    parser.add_argument("--run", metavar="RUN", help="which run, where its name looks like a rule")
    parser.add_argument("--list", action="store_true", help="only print; so does no RULE")
    parser.add_argument("--clear", metavar="ID", help="clear the breakpoint of this number, or all")
    parser.add_argument(
        "--continue", dest="go_on", metavar="RANKS", help="let these stopped ranks go on, or all"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    return parser


def _rule_and_run(words: Sequence[str], run: str | None) -> tuple[str | None, str | None]:
    """A rule has an operator in it, a run has none."""
    rules = [word for word in words if any(c in word for c in "=<>")]
    runs = [word for word in words if word not in rules] + ([run] if run is not None else [])
    if len(rules) > 1:
        raise UsageError(
            f"{len(rules)} rules at once",
            hint="conditions that belong together are joined by commas",
        )
    if len(runs) > 1:
        raise UsageError(f"{len(runs)} runs: {', '.join(runs)}", hint="a rule is like rank=3")
    return (rules[0] if rules else None), (runs[0] if runs else None)


def _id_of(text: str) -> int | None:
    """None: all."""
    if text == _ALL:
        return None
    if not text.isdecimal():
        raise UsageError(f"--clear={text!r} is no number of a breakpoint, nor all")
    return int(text)


def _ranks_of(text: str) -> list[int] | None:
    """None: all."""
    if text == _ALL:
        return None
    try:
        return sorted(read_ranks(text))
    except ValueError:
        raise UsageError(f"--continue={text!r} is no list of ranks, nor all") from None


# ------------------------------------------------------------------------------------ who does it


def _with_agent(live: LiveRun, rule: str | None, chosen: argparse.Namespace) -> Plain:
    try:
        return _ask_agent(live, rule, chosen)
    except AgentError as error:
        if error.type != "UsageError":
            raise
        raise UsageError(error.what, hint=error.hint) from error


def _ask_agent(live: LiveRun, rule: str | None, chosen: argparse.Namespace) -> Plain:
    done: Plain = {}
    with live.connect() as client:
        if rule is not None:
            done = {"armed": client.ask("break", rule=rule)["id"]}
        elif chosen.clear:
            done = client.ask("clear", breakpoint=_id_of(chosen.clear))
        elif chosen.go_on:
            answer = client.ask("continue", ranks=_ranks_of(chosen.go_on))
            done = {"continued": answer["ranks"], "failed": answer["failed"]}
        found = client.ask("breakpoints")
        gone = done.get("continued", ())  # the agent looks ten times a second
        found["stopped"] = [row for row in found["stopped"] if row["rank"] not in gone]
        return {**done, **found}


def _alone(live: LiveRun, rule: str | None, chosen: argparse.Namespace) -> Plain:
    """Without an agent: on the page of this host."""
    if live.folder is None:
        raise UsageError(
            f"no agent answers for run {live.run}, and its records are not to be found"
        )
    sys.stderr.write(
        f"no agent answers for run {live.run}: what follows concerns the ranks of this host only\n"
    )
    _sweep(live)
    rows = rows_without_agent(live)
    stopped = [row for row in rows if row["state"] == RankState.DEBUGGED]
    rules = rules_from_page(read_page(live.folder, live.host).rules)
    done: Plain = {}
    if rule is not None:
        added = Rule.parse(rule, max((one.id for one in rules), default=0) + 1)
        added.check_ranks(world_size_of(live.folder))
        rules = _write(live, (*rules, added))
        done = {"armed": added.id}
    elif chosen.clear:
        left = without_rule(rules, _id_of(chosen.clear))
        done = {"cleared": [one.id for one in rules if one not in left]}
        rules = _write(live, left)
    elif chosen.go_on:
        ranks = _ranks_of(chosen.go_on)
        wanted = {row["rank"] for row in stopped} if ranks is None else set(ranks)
        reached = ranks_with_sockets(live.folder) if ranks is None else set()
        reported = [
            one
            for one in continue_ranks(live.folder, sorted(wanted | reached))
            if one.is_stopped or one.rank in wanted
        ]
        done = {
            "continued": [one.rank for one in reported if not one.why_not],
            "failed": [{"rank": o.rank, "why": o.why_not} for o in reported if o.why_not],
        }
        stopped = [row for row in stopped if row["rank"] not in done["continued"]]
    return {**done, **breakpoints_to_plain(rules, stopped)}


def _sweep(live: LiveRun) -> None:
    """Give back what ranks held that are gone: there is no agent that would."""
    assert live.folder is not None
    page = ControlPage.open(live.folder, live.host)
    try:
        page.sweep()
    finally:
        page.close()


def _write(live: LiveRun, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    assert live.folder is not None
    page = ControlPage.open(live.folder, live.host)
    try:
        page.arm(json.dumps(rules_to_page(rules)).encode() if rules else b"")
    finally:
        page.close()
    return rules


# ------------------------------------------------------------------------------------ what is shown


def _print(live: LiveRun, said: Plain) -> None:
    if "armed" in said:
        sys.stderr.write(f"breakpoint {said['armed']} is armed\n")
    if "cleared" in said:
        count = len(said["cleared"])
        sys.stderr.write(f"{count} breakpoint{'s are' if count != 1 else ' is'} cleared\n")
    if said.get("continued"):
        ranks = format_ranks(said["continued"])
        who = f"rank {ranks} goes" if len(said["continued"]) == 1 else f"ranks {ranks} go"
        sys.stderr.write(f"{who} on\n")
    elif "continued" in said and not said["failed"]:
        sys.stderr.write("no rank is stopped\n")
    for one in said.get("failed", ()):
        sys.stderr.write(f"{one['why']}\n")
    rules = [(str(one["id"]), one["rule"]) for one in said["rules"]]
    if rules:
        print_table(f"run {live.run}: breakpoints", ("id", "rule"), rules)
    else:
        sys.stdout.write(f"run {printable(live.run)}: no breakpoint is armed\n")
    if said["stopped"]:
        sys.stdout.write("\n")
        print_table(
            "stopped",
            ("rank", "host", "for", "where", "why"),
            [
                (str(s["rank"]), s["host"], duration_text(s["since_s"]), s["site"], s["why"])
                for s in said["stopped"]
            ],
        )
