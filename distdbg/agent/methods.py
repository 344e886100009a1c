"""The methods of the API: requests in, plain values out.

An invalid request gets an error and changes nothing. Subscriptions get changes since the last event, at most
four times a second.
"""

from __future__ import annotations

import getpass
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from distdbg import __version__
from distdbg.agent.breakpoint_orders import Breakpoints
from distdbg.agent.pipes import ClientPipes
from distdbg.agent.races import Races
from distdbg.agent.take_stacks import SampledProcess, take_stacks
from distdbg.client import protocol
from distdbg.client.protocol import PROTOCOL, Request
from distdbg.control.words import AbortWords
from distdbg.errors import DistError, RecordError, UsageError
from distdbg.follow.answers.methods import Board, ranks_of, text_of
from distdbg.follow.answers.op_json import plain_groups, plain_ops
from distdbg.follow.findings import Findings
from distdbg.follow.merge import merge
from distdbg.follow.processes import read_parent
from distdbg.follow.stacks import RankStacks
from distdbg.record.ends import RankEnd
from distdbg.record.stop_order import write_stop_order

if TYPE_CHECKING:
    from distdbg.agent.api import ApiClient
    from distdbg.agent.metering.metering import AgentWithMetrics

Plain = dict[str, Any]

_EVENT_NS: Final = 250_000_000
_TOPICS: Final = ("ranks", "findings", "verdict")
#: Fields of a row that are other ones every time.
_AGES: Final = (
    "state_age_s", "progress_age_s", "cpu_s", "rss_nbytes", "threads", "gpu", "gpu_nbytes",
)  # fmt: skip


@dataclass(slots=True)
class _Subscription:
    client: ApiClient
    id: int | str
    topics: tuple[str, ...]
    rows: dict[int, Plain] = field(default_factory=dict)
    found: int = 0
    verdict: object = None
    """The state of the diagnosis that it was told last."""


class Methods:
    def __init__(self, agent: AgentWithMetrics) -> None:
        self._agent = agent
        self._subscriptions: list[_Subscription] = []
        self._reported_ns = 0
        self.findings = Findings()
        self._races = Races(agent, self.findings)
        self.pipes = ClientPipes(agent)
        self._board = Board(agent)
        self.breakpoints = Breakpoints(agent)
        self._methods: dict[str, Callable[[Plain], Plain]] = {
            "about": self._about,
            "runs": self._runs,
            "ranks": self._ranks,
            "groups": self._groups,
            "ops": self._ops,
            "findings": self._findings,
            "verdict": self._verdict,
            "waits": self._waits,
            "pause": lambda _: self._agent.steering.order("pause"),
            "resume": lambda _: self._agent.steering.order("resume"),
            "abort": self._abort,
            "breakpoints": lambda _: self.breakpoints.plain(self._rows().values()),
            "break": self.breakpoints.arm,
            "clear": self.breakpoints.clear,
            "stop": self._stop,
            **self._board.methods,
        }

    # ------------------------------------------------------------------------------- as the server asks

    def do(self, request: Request, client: ApiClient) -> None:
        try:
            if request.do == "subscribe":
                self._subscribe(request, client)
                return
            if request.do == "stacks":
                self._stacks(request, client)
                return
            if request.do == "totals":
                self._agent.metering.answer_totals(request, client)
                return
            if request.do in ("debug", "via"):
                self._become_pipe(request, client)
                return
            if request.do == "continue":
                self.breakpoints.continue_requested(request, client, self._rows().values())
                return
            method = self._methods.get(request.do)
            if method is None:
                others = ("continue", "debug", "stacks", "subscribe", "totals", "via")
                names = ", ".join(sorted([*self._methods, *others]))
                raise UsageError(
                    f"there is no method {request.do!r:.80}", hint=f"there are {names}"
                )
            client.send(protocol.answer(request.id, method(request.arguments)))
        except (DistError, OSError, ValueError, TypeError) as error:
            client.send(protocol.refuse(request.id, error))

    def gone(self, client: ApiClient) -> None:
        self._subscriptions = [s for s in self._subscriptions if s.client is not client]
        self.pipes.gone(client)

    def tick(self, now_ns: int) -> None:
        """Tell subscribers what has changed."""
        self.findings.look(self._agent.roster)
        self._races.tick(now_ns)
        self.pipes.tick(now_ns)
        self._board.tick(now_ns)
        if not self._subscriptions or now_ns - self._reported_ns < _EVENT_NS:
            return
        self._reported_ns = now_ns
        rows = self._rows()
        for subscription in list(self._subscriptions):
            event = self._news(subscription, rows)
            if event and not subscription.client.has_unread:
                subscription.client.send(protocol.tell(subscription.id, event))

    def recorded_findings(self) -> list[Plain]:
        """All that the ranks have recorded of errors and findings by now."""
        self.findings.look(self._agent.roster)
        return self.findings.since(0)

    def close(self) -> None:
        """Let go of everything."""
        self._board.close()
        self._board.gpus.close()

    def begin_anew(self) -> None:
        """The ranks were started again."""
        self.findings = Findings()
        self._races = Races(self._agent, self.findings)
        self.pipes.begin_anew()
        self._board.begin_anew()
        for subscription in self._subscriptions:
            subscription.found = 0

    # ------------------------------------------------------------------------------- methods

    def _about(self, _: Plain) -> Plain:
        agent = self._agent
        return {
            "run": agent.run_name,
            "host": agent.host,
            "pid": os.getpid(),
            "protocol": PROTOCOL,
            "version": __version__,
            "folder": str(agent.roster.folder),
            "run_folder": str(agent.folder),
            "attempt": agent.roster.attempt,
            "launcher_pid": self._launcher_pid(),
            "control": agent.steering.plain_state(),
            "tree": agent.steering.plain_tree(),
            "world": agent.roster.world_size,
            "is_debuggable": agent.roster.is_debuggable,
            "up_s": round((time.monotonic_ns() - agent.began_ns) / 1e9, 3),
            "cpu_s": round(time.process_time(), 3),
            "metrics": agent.exporting.plain() if agent.exporting is not None else None,
        }

    def _runs(self, _: Plain) -> Plain:
        about = self._about({})
        names = ("run", "host", "pid", "run_folder", "attempt", "launcher_pid")
        return {"runs": [{name: about[name] for name in names}]}

    def _ranks(self, _: Plain) -> Plain:
        return {"ranks": list(self._rows().values())}

    def _groups(self, _: Plain) -> Plain:
        return {"groups": plain_groups(self._records())}

    def _ops(self, arguments: Plain) -> Plain:
        only = ranks_of(arguments)
        records = [one for one in self._records() if only is None or one[0] in only]
        return {"ops": plain_ops(records, time.monotonic_ns())}

    def _findings(self, _: Plain) -> Plain:
        return {
            "findings": self.findings.since(0),
            "ends": [_plain_end(end) for end in self._agent.ends],
        }

    def _verdict(self, arguments: Plain) -> Plain:
        watch = self._agent.watch
        version = f"{self._agent.roster.attempt}.{watch.version}"
        if arguments.get("unless") == version:
            return {"version": version}
        lines, verdict = watch.plain_lines(), watch.plain_verdict()
        return {"version": version, "lines": lines, "verdict": verdict}

    def _waits(self, _: Plain) -> Plain:
        return {"waits": self._agent.watch.plain_waits()}

    def _abort(self, arguments: Plain) -> Plain:
        words = AbortWords(
            what=text_of(arguments, "what"),
            type=text_of(arguments, "type", "stopped"),
            ranks=sorted(ranks_of(arguments) or ()),
            hint=text_of(arguments, "hint", ""),
            by=text_of(arguments, "by", getpass.getuser()),
        )
        return self._agent.steering.order("abort", json.loads(words.to_json()))

    def _stop(self, arguments: Plain) -> Plain:
        kill = arguments.get("kill", False)
        if type(kill) is not bool:
            raise UsageError("stop: 'kill' is true or false")
        if self._agent.steering.has_tree:
            # One launcher that leaves does not end a job that goes on without it.
            words = {"kill": kill, "by": getpass.getuser()}
            return self._agent.steering.order("stop", words)
        return self.stop_here(kill)

    def stop_here(self, kill: bool) -> Plain:
        """End this host's part of the job."""
        launcher = self._launcher_pid()
        if launcher is not None and not kill:
            write_stop_order(self._agent.folder, getpass.getuser())
            os.kill(launcher, signal.SIGTERM)
            return {"launcher": launcher}
        lives = {
            r: s.life for r, s in self._agent.roster.watched_ranks.items() if s.life is not None
        }
        for life in lives.values():
            life.send(signal.SIGKILL if kill else signal.SIGTERM)
        return {"ranks": sorted(lives)}

    def _subscribe(self, request: Request, client: ApiClient) -> None:
        topics = request.arguments.get("to", list(_TOPICS))
        if (
            not isinstance(topics, list)
            or not topics
            or not all(isinstance(topic, str) and topic in _TOPICS for topic in topics)
        ):
            raise UsageError("subscribe: 'to' is a list of " + ", ".join(map(repr, _TOPICS)))
        if any(s.client is client for s in self._subscriptions):
            raise UsageError("subscribe: this connection has a subscription")
        subscription = _Subscription(client, request.id, tuple(topics))
        self._subscriptions.append(subscription)
        now = self._news(subscription, self._rows())
        client.send(protocol.answer(request.id, now))

    def _become_pipe(self, request: Request, client: ApiClient) -> None:
        if any(s.client is client for s in self._subscriptions):
            raise UsageError(f"{request.do}: this connection has a subscription")
        if request.do == "debug":
            self.pipes.debug(request, client)
        else:
            self.pipes.via(request, client)

    def _stacks(self, request: Request, client: ApiClient) -> None:
        only = ranks_of(request.arguments)
        timeout_s = request.arguments.get("limit_s", 5.0)
        native = request.arguments.get("native", True)
        if (
            type(timeout_s) not in (int, float)
            or not 0 < timeout_s <= 60
            or type(native) is not bool
        ):
            raise UsageError("stacks: 'limit_s' is from 0 to 60 seconds, 'native' true or false")
        roster = self._agent.roster
        targets = [
            SampledProcess(rank, watched.pid, watched.life.started, roster.folder)
            for rank, watched in sorted(roster.watched_ranks.items())
            if watched.life is not None and (only is None or rank in only)
        ]
        deadline_ns = time.monotonic_ns() + int(timeout_s * 1e9)

        def then(done: Future[Any]) -> None:
            error = done.exception()
            if error is not None:
                client.send(protocol.refuse(request.id, error))
            else:
                client.send(protocol.answer(request.id, _plain_stacks(done.result())))

        self._agent.run_in_thread(lambda: take_stacks(targets, deadline_ns, native=native), then)

    # ------------------------------------------------------------------------------- parts

    def _rows(self) -> dict[int, Plain]:
        watched_ranks = self._agent.roster.watched_ranks
        rows = {
            row.rank: row.plain() | self._board.use_of(watched_ranks[row.rank])
            for row in self._agent.rows()
        }
        view = self._agent.steering.view()
        if view is not None:  # what this host knows of itself is newer
            rows = {row.rank: row.plain() for row in view.ranks if row.rank not in rows} | rows
        return dict(sorted(rows.items()))

    def _records(self) -> list[tuple[int, Any]]:
        watched_ranks = self._agent.roster.watched_ranks
        found = []
        for rank in sorted(watched_ranks):
            record = watched_ranks[rank].record
            if record is not None:
                try:
                    record.pulse()
                except RecordError:
                    continue
                found.append((rank, record))
        return found

    def _news(self, subscription: _Subscription, rows: dict[int, Plain]) -> Plain:
        news: Plain = {}
        if "ranks" in subscription.topics:
            changed = [
                row for rank, row in rows.items() if _differs(row, subscription.rows.get(rank))
            ]
            gone = sorted(subscription.rows.keys() - rows.keys())
            subscription.rows = rows
            if changed:
                news["ranks"] = changed
            if gone:
                news["gone"] = gone
        if "findings" in subscription.topics:
            found = self.findings.since(subscription.found)
            subscription.found += len(found)
            if found:
                news["findings"] = found
        watch = self._agent.watch
        state = (id(watch), watch.version)
        if "verdict" in subscription.topics and subscription.verdict != state:
            is_first = subscription.verdict is None
            subscription.verdict = state
            if watch.version or not is_first:
                news["verdict"] = {**self._verdict({}), **self._waits({})}
        return news

    def _launcher_pid(self) -> int | None:
        # launcher - warden - agent
        launcher = read_parent(os.getppid()) if self._agent.has_launcher else 0
        return launcher if launcher > 1 else None


def _differs(row: Plain, known: Plain | None) -> bool:
    if known is None:
        return True
    return any(row[name] != known.get(name) for name in row if name not in _AGES)


def _plain_end(end: RankEnd) -> Plain:
    return {**asdict(end), "how": end.how}


def _plain_stacks(found: list[RankStacks]) -> Plain:
    return {
        "stacks": [stack.to_plain() for stack in merge(found)],
        "how": {str(one.rank): one.how for one in found if one.threads},
        "failed": [{"rank": one.rank, "why": one.why_not} for one in found if not one.threads],
    }
