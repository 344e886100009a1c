"""Breakpoints at an agent: arms them, lists ranks stopped there, continues ranks.

Rules go to the pages of all hosts, the whole set each time, as the order `arm`. When two
people change them on two hosts at once the later change wins. Each agent numbers its rules in its own range,
so a number means one rule on all hosts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distdbg.client import protocol
from distdbg.client.protocol import Request
from distdbg.control import sockets
from distdbg.control.breakpoints import Rule, breakpoints_to_plain, rules_from_page, rules_to_page
from distdbg.errors import DistError, UsageError, format_ranks
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    from distdbg.agent.api import ApiClient
    from distdbg.agent.context import AgentContext

Plain = dict[str, Any]

#: The numbers that the agent of one host gives: node 0 from 1 on, node 1 from 10,001 on.
IDS_PER_HOST: Final = 10_000
#: How long what was ordered is taken for armed, though the page does not say so yet.
_PENDING_NS: Final = 3_000_000_000
#: How long a rank at a prompt may take to say that it goes on.
_ANSWER_S: Final = 2.0
_MAX_LINE_NBYTES: Final = 1 << 16


class Breakpoints:
    """What the API's methods about breakpoints do."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._last_id = 0
        self._pending: tuple[Rule, ...] | None = None
        self._pending_ns = 0

    def plain(self, rows: Iterable[Plain]) -> Plain:
        """Those that are armed, and who is stopped."""
        stopped = (row for row in rows if row["state"] == RankState.DEBUGGED)
        return breakpoints_to_plain(self._rules(), stopped)

    def arm(self, arguments: Plain) -> Plain:
        """One more, on all hosts; UsageError for a rule that is none."""
        text = arguments.get("rule")
        if not isinstance(text, str):
            raise UsageError("break: 'rule' is a text", hint="such as rank=3,kind=all_reduce")
        rules = self._rules()
        rule = Rule.parse(text, self._next_id(rules))
        rule.check_ranks(self._agent.roster.world_size)
        self._order((*rules, rule))
        self._last_id = rule.id
        return {"id": rule.id, "rule": rule.text}

    def clear(self, arguments: Plain) -> Plain:
        """One of them, or all; UsageError where there is none of that number."""
        rules = self._rules()
        left = without_rule(rules, arguments.get("breakpoint"))
        self._order(left)
        return {"cleared": [rule.id for rule in rules if rule not in left]}

    def continue_requested(
        self, request: Request, client: ApiClient, rows: Collection[Plain]
    ) -> None:
        """Let stopped ranks go on, on all hosts; answers when those of this host have said that they do."""
        ranks = request.arguments.get("ranks")
        if ranks is not None and (
            not isinstance(ranks, list) or not all(type(rank) is int for rank in ranks)
        ):
            raise UsageError("'ranks' is a list of numbers")
        folder = self._agent.roster.folder
        stopped = {row["rank"] for row in rows if row["state"] == RankState.DEBUGGED}
        wanted = stopped if ranks is None else set(ranks)
        here = wanted & self._agent.roster.watched_ranks.keys()
        elsewhere = sorted(wanted - here)
        if ranks is None:
            here |= ranks_with_sockets(folder).difference(elsewhere)
        steering = self._agent.steering
        failed = []
        if elsewhere and steering.has_tree:
            steering.order("continue", {"ranks": elsewhere})
        elif elsewhere:
            failed = [{"rank": rank, "why": "no such rank on this host"} for rank in elsewhere]
            elsewhere = []

        def then(done: Future[Any]) -> None:
            outcomes: list[LetGo] = done.result()
            reported = [one.rank for one in outcomes if not one.why_not]
            unreported = [
                {"rank": one.rank, "why": one.why_not}
                for one in outcomes
                if one.why_not and (one.is_stopped or one.rank in wanted)
            ]
            answer = {"ranks": sorted([*reported, *elsewhere]), "failed": failed + unreported}
            client.send(protocol.answer(request.id, answer))

        self._agent.run_in_thread(lambda: continue_ranks(folder, sorted(here)), then)

    def continue_ordered(self, ranks: Sequence[int]) -> None:
        """An order from another host: those of them that are here go on."""
        here = [rank for rank in ranks if rank in self._agent.roster.watched_ranks]
        folder = self._agent.roster.folder
        self._agent.run_in_thread(lambda: continue_ranks(folder, here), lambda _: None)

    def _rules(self) -> tuple[Rule, ...]:
        found = rules_from_page(self._agent.steering.rules())
        if self._pending is not None:
            is_over = time.monotonic_ns() - self._pending_ns > _PENDING_NS
            if not is_over and found != self._pending:
                return self._pending
            self._pending = None
        return found

    def _order(self, rules: tuple[Rule, ...]) -> None:
        steering = self._agent.steering
        if rules:
            steering.order("arm", rules_to_page(rules))
        else:
            steering.order("disarm")
        self._pending, self._pending_ns = rules, time.monotonic_ns()

    def _next_id(self, rules: Iterable[Rule]) -> int:
        first = self._agent.steering.node * IDS_PER_HOST
        mine = [rule.id for rule in rules if first < rule.id <= first + IDS_PER_HOST]
        return max([first, self._last_id, *mine]) + 1


def without_rule(rules: Sequence[Rule], id_: object) -> tuple[Rule, ...]:
    """What is left when the rule of this number is cleared; None: all are."""
    if id_ is None:
        return ()
    if type(id_) is not int:
        raise UsageError("clear: 'breakpoint' is a number")
    left = tuple(rule for rule in rules if rule.id != id_)
    if len(left) == len(rules):
        known = format_ranks([rule.id for rule in rules]) if rules else ""
        raise UsageError(
            f"there is no breakpoint {id_}",
            hint=f"there are {known}" if known else "none is armed",
        )
    return left


# ---------------------------------------------------------------------------------- ranks at prompts


@dataclass(frozen=True, slots=True)
class LetGo:
    """What came of letting a rank go on; `why_not` is '' when it does."""

    rank: int
    why_not: str = ""
    is_stopped: bool = True
    """As far as is known: also of a rank that does not answer."""


def ranks_with_sockets(folder: Path) -> set[int]:
    """The ranks of this host whose debugger can be reached: they know whether they are stopped."""
    paths = folder.glob(sockets.debugger_socket("*"))
    names = (path.stem.removeprefix("debug-rank") for path in paths)
    return {int(name) for name in names if name.isdecimal()}


def continue_ranks(folder: Path, ranks: Iterable[int]) -> list[LetGo]:
    """Tell these ranks of this host to go on from their prompts. Blocks up to 2 s for each."""
    return [_let_one_go(folder, rank) for rank in ranks]


def _let_one_go(folder: Path, rank: int) -> LetGo:
    try:
        sock = sockets.connect(folder / sockets.debugger_socket(rank), _ANSWER_S)
    except OSError:
        return LetGo(rank, f"rank {rank} is not in a debugger", is_stopped=False)
    deadline = time.monotonic() + _ANSWER_S
    try:
        with sock, sock.makefile("rb") as lines:
            sock.settimeout(_ANSWER_S)
            hello = _read(lines.readline(_MAX_LINE_NBYTES))
            if hello.get("state") != "stopped":
                return LetGo(rank, f"rank {rank} is not stopped", is_stopped=False)
            sock.sendall(b'{"continue": true}\n')
            while time.monotonic() < deadline:
                line = lines.readline(_MAX_LINE_NBYTES)
                said = _read(line)
                if said.get("refused"):
                    return LetGo(rank, str(said.get("ended", "")))
                if not line or said.get("running") or "ended" in said:
                    return LetGo(rank)
                if "error" in said:
                    return LetGo(rank, str(said["error"]))
    except (OSError, DistError) as error:
        return LetGo(rank, f"rank {rank} does not answer: {error}")
    return LetGo(rank, f"rank {rank} did not confirm that it continues")


def _read(line: bytes) -> Plain:
    try:
        words = json.loads(line)
    except ValueError:
        return {}
    return words if isinstance(words, dict) else {}
