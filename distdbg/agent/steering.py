"""Control orders: carried out on the control page of this host, and on all hosts through the tree.

An order is carried out on every host of the job, or on this one only where the job has one host or no tree of
agents.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from distdbg.agent.launcher_orders import Attempt
from distdbg.control.holds import OTHER_HOST, USER, Hold, hold_of
from distdbg.control.page import ControlPage, read_page
from distdbg.control.state import ControlState
from distdbg.control.words import AbortWords
from distdbg.errors import DistError, RecordError
from distdbg.follow.status import RankStatus
from distdbg.hosts.accounts import AccountRequest, HostAccountState
from distdbg.hosts.clock_words import write_offset
from distdbg.hosts.orders import Do
from distdbg.hosts.other_hosts import HostsInDebugger
from distdbg.hosts.pipes import NoWay, PipeKey, PipeTarget
from distdbg.hosts.tail_sampling import KeptOp
from distdbg.record.folders import record_name
from distdbg.record.rank_state import RankState

if TYPE_CHECKING:
    import socket

    from distdbg.hosts.job_view import JobView
    from distdbg.hosts.pipe_ends import PipeMail
    from distdbg.hosts.place import Tree

_BEAT_NS: Final = 1_000_000_000
#: How often the offset of the clock is written; and how often it is tried until all ranks have it.
_FIRST_CLOCK_NS: Final = 1_000_000_000
_CLOCK_NS: Final = 10_000_000_000
#: Less, and launchers lose the one that serves them; more, and it starts its ranks anew without them.
_STOP_LAST_NS: Final = 100_000_000

_log = logging.getLogger("distdbg.agent")


class Steering:
    """The page and the tree of one start of the ranks."""

    def __init__(self, selector: selectors.BaseSelector, host: str, run: str) -> None:
        self._selector = selector
        self._host = host
        self._run = run
        self._folder: Path | None = None
        self._tree: Tree | None = None
        self._is_launched = False
        self._node = 0
        self._nodes = 1
        #: The breakpoints that were ordered last: they are armed at the next start as well.
        self._armed: dict[str, Any] = {}
        #: Rules for the ranks that a launcher has started: they count for those that join later too.
        self._held: ControlPage | None = None
        self._beat_ns = -_BEAT_NS
        self._clock_ns = 0
        #: How this host's part of the job is ended; told whether to kill.
        self.on_stop: Callable[[bool], object] = lambda _: None
        #: Told what the tree says of pipes.
        self.on_pipe: Callable[[PipeMail], object] = lambda _: None
        self._stop: tuple[int, bool] | None = None
        #: How ranks of this host that sit in a debugger are told to go on.
        self.on_continue: Callable[[list[int]], object] = lambda _: None
        self._others = HostsInDebugger(host)
        self._own_hold = hold_of(OTHER_HOST)
        #: The holders of this host's clock when it was last looked at.
        self.holds: tuple[Hold, ...] = ()

    # ------------------------------------------------------------------------------- beginning, end

    def follow(self, folder: Path) -> None:
        """Steer the ranks whose records are in `folder`."""
        self.close()
        self._folder = folder
        self._clock_ns = 0

    def join(self, attempt: Attempt) -> None:
        """Meet the agents of the job's other hosts, for a start by a launcher."""
        self._is_launched = True
        self.meet(attempt)
        if self._armed and self.is_root:
            with suppress(RecordError, ValueError):
                self.order("arm", self._armed)

    def meet(self, attempt: Attempt) -> None:
        """Find the agents of the job's other hosts, where there are some."""
        self._node, self._nodes = attempt.node_rank, attempt.nodes
        if attempt.nodes < 2 or not attempt.store:
            return
        from distdbg.hosts.place import Tree  # needs native code, for the store

        token = os.environ.get("DISTDBG_TOKEN", "").encode("utf-8", "surrogateescape")
        try:
            self._tree = Tree(
                self._host,
                attempt.nodes,
                attempt.node_rank,
                attempt.store,
                token,
                run=self._run,
                round_number=attempt.number,
                addr=attempt.addr or None,
            )
        except (DistError, ValueError, OSError) as error:
            _log.warning("this host's agent is alone: %s", error)
            return
        self._selector.register(self._tree, selectors.EVENT_READ, self._on_orders)

    def close(self) -> None:
        self._hold_for_others(False)
        self._others = HostsInDebugger(self._host)
        self.holds = ()
        if self._tree is not None:
            with suppress(KeyError, ValueError):
                self._selector.unregister(self._tree)
            self._tree.close()
            self._tree = None
        if self._held is not None:
            self._held.close()
            self._held = None

    # ------------------------------------------------------------------------------- from moment to moment

    def tick(self, now_ns: int) -> None:
        """Say on the page that there is an agent; not when no rank is left, who might need it."""
        self._stop_when_due(now_ns)
        if now_ns - self._beat_ns < _BEAT_NS:
            return
        self._beat_ns = now_ns
        with suppress(RecordError), self._page() as page:
            page.beat(os.getpid(), now_ns)

    def look(self) -> frozenset[int]:
        """The holders of this host's clock now, its ranks among them; without those that have died."""
        state = self._read()
        self.holds = state.holds if state is not None else ()
        if any(hold.is_gone for hold in self.holds):
            with suppress(RecordError), self._page() as page:
                page.sweep()
                self.holds = page.holds()
        return frozenset(hold.rank for hold in self.holds if hold.is_of_rank)

    @property
    def is_held(self) -> bool:
        """Whether the clock of this host stood when it was last looked at."""
        return bool(self.holds)

    @property
    def is_debugged(self) -> bool:
        """Whether a rank of any host sat in a debugger then."""
        return any(hold.is_of_rank or hold.rank == OTHER_HOST for hold in self.holds)

    def share_holds(self, is_held_here: bool, now_ns: int) -> None:
        """Let the clocks of all hosts stand while a rank of any sits in a debugger (`other_hosts`)."""
        tree = self._tree
        if tree is None:
            return
        if tree.is_root:
            hosts = tree.hosts_in(RankState.DEBUGGED) - {self._host}
            words = self._others.due(hosts | ({self._host} if is_held_here else set()), now_ns)
            if words is not None:
                tree.send_order("holds", words)
        self._hold_for_others(self._others.is_holding(now_ns))

    def _hold_for_others(self, is_wanted: bool) -> None:
        mine = self._own_hold
        if is_wanted == (mine in self.holds):
            return
        with suppress(RecordError), self._page() as page:
            if is_wanted:
                page.hold(mine)
            else:
                page.release(mine)
            self.holds = page.holds()

    def _stop_when_due(self, now_ns: int) -> None:
        if self._stop is not None and now_ns >= self._stop[0]:
            _, kill = self._stop
            self._stop = None
            self.on_stop(kill)

    def write_clock(self, ranks: Iterable[int], now_ns: int) -> None:
        """Say in the records of these ranks how far this host's clock is from the root's."""
        if self._tree is None or self._folder is None or now_ns < self._clock_ns:
            return
        offset = self._tree.offset()
        self._clock_ns = now_ns + _CLOCK_NS
        for rank in ranks:
            if offset is None or not write_offset(self._folder / record_name(rank), offset):
                self._clock_ns = now_ns + _FIRST_CLOCK_NS

    def report(self, rows: Sequence[RankStatus]) -> None:
        """Tell the other hosts' agents."""
        if self._tree is not None:
            self._tree.report(rows)

    @property
    def has_tree(self) -> bool:
        return self._tree is not None

    @property
    def is_root(self) -> bool:
        """Whether what is known of the job comes together here."""
        return self._tree is None or self._tree.is_root

    def put_account(self, account: dict[str, Any], request: int) -> None:
        """Tell the root where the ranks of this host stand; ValueError when that is too long."""
        if self._tree is not None:
            self._tree.put_account(account, request)

    def accounts(self) -> list[HostAccountState]:
        """What the other hosts have told of where their ranks stand."""
        return self._tree.accounts() if self._tree is not None else []

    def account_request(self) -> AccountRequest:
        """The last request of the root."""
        return self._tree.account_request() if self._tree is not None else AccountRequest()

    def request_accounts(self, ranks: Sequence[int]) -> int:
        """Let all other hosts tell it again; the number of the request."""
        return self._tree.request_accounts(ranks) if self._tree is not None else 0

    def keep(self, keeps: Sequence[KeptOp]) -> None:
        """Have all other hosts keep the spans of these ops."""
        if self._tree is not None and keeps:
            self._tree.keep(keeps)

    def kept(self) -> list[KeptOp]:
        """Those that others have told of since this was asked last."""
        return self._tree.kept() if self._tree is not None else []

    def rows_of_others(self) -> tuple[RankStatus, ...]:
        view = self.view()
        if view is None:
            return ()
        return tuple(row for row in view.ranks if row.host != self._host)

    def other_hosts(self) -> dict[str, bool]:
        """The hosts of the job as its root knows them, and whether each is lost; elsewhere none."""
        if self._tree is None or not self._tree.is_root:
            return {}
        return {host: lost for host, lost in self._tree.hosts().items() if host != self._host}

    @property
    def other_count(self) -> int:
        """How many other hosts the job has, by its root; elsewhere none."""
        return self._nodes - 1 if self._tree is not None and self._tree.is_root else 0

    def plain_tree(self) -> dict[str, Any] | None:
        """How this agent is placed among those of the job's hosts; None: there are no others."""
        if self._tree is None:
            return None
        hosts = [
            {"host": h.host, "is_lost": h.is_lost, "has_left": h.has_left}
            for h in self._tree.view().hosts
        ]
        is_root, is_attached = self._tree.is_root, self._tree.is_attached
        return {"is_root": is_root, "is_attached": is_attached, "hosts": hosts}

    def view(self) -> JobView | None:
        """All of the job at its root, elsewhere what is below; None: this host is all there is."""
        return self._tree.view() if self._tree is not None else None

    @property
    def is_aborted(self) -> bool:
        """Whether somebody has ended the job, on this host."""
        state = self._read()
        return state is not None and state.abort is not None

    @property
    def node(self) -> int:
        """The number of this host in the job."""
        return self._node

    def rules(self) -> bytes:
        """The breakpoints that are armed on this host, as the page has them."""
        state = self._read()
        return state.rules if state is not None else b""

    def plain_state(self) -> dict[str, Any]:
        """What the page says, for the API."""
        state = self._read()
        if state is None:
            return {"is_paused": False, "paused_s": 0.0, "holds": [], "abort": None, "rules": None}
        words = state.abort
        return {
            "is_paused": state.is_paused,
            "paused_s": round(state.paused_ns / 1e9, 3),
            "holds": [plain_hold(hold, time.monotonic_ns()) for hold in state.holds],
            "abort": json.loads(words.to_json()) if words is not None else None,
            "rules": json.loads(state.rules) if state.rules else None,
        }

    # ------------------------------------------------------------------------------- pipes

    def open_pipe(self, target: PipeTarget) -> PipeKey | None:
        """Begin one to the agent of another host; None: it is this one. NoWay."""
        if self._tree is None:
            raise NoWay(f"no agent of {target} is in touch with that of host {self._host}")
        return self._tree.open_pipe(target)

    def join_pipe(self, key: PipeKey, sock: socket.socket, unwritten: bytes, unsent: bytes) -> None:
        """Give a client to one that was accepted."""
        if self._tree is None:
            sock.close()
        else:
            self._tree.join_pipe(key, sock, unwritten, unsent)

    def end_pipe(self, key: PipeKey) -> None:
        if self._tree is not None:
            self._tree.end_pipe(key)

    # ------------------------------------------------------------------------------- orders

    def abort(self, words: AbortWords) -> None:
        """End the job with these words, on all hosts; once logged where it cannot be."""
        try:
            self.order("abort", json.loads(words.to_json()))
        except (RecordError, ValueError) as error:
            _log.warning("the job cannot be aborted: %s", error)

    def order(self, do: Do, words: dict[str, Any] | None = None) -> dict[str, Any]:
        """Carry it out, on all hosts; RecordError when this host has no page."""
        if self._tree is not None:
            return {"ticket": self._tree.send_order(do, words)}
        return {"changed": self._apply(do, words or {})}

    def _on_orders(self, _: int) -> None:
        tree = self._tree
        if tree is None:
            return
        for order in tree.orders():
            try:
                self._apply(order.do, order.words)
            except RecordError as error:
                _log.warning("an order cannot be carried out: %s", error)
            tree.acknowledge(order)
        for mail in tree.pipe_mail():
            self.on_pipe(mail)

    def _apply(self, do: Do, words: dict[str, Any]) -> bool:
        if do == "continue":
            ranks = words.get("ranks")
            self.on_continue(
                [r for r in ranks if type(r) is int] if isinstance(ranks, list) else []
            )
            return True
        if do == "holds":
            now_ns = time.monotonic_ns()
            self._others.hear(words, now_ns)
            self._hold_for_others(self._others.is_holding(now_ns))
            return True
        if self._is_launched and self._held is None and self._folder is not None:
            # Each start has a folder of its own, so no later run can find the page in use.
            self._held = ControlPage.open(self._folder, self._host, self._run)
        if do == "stop":
            # Launchers that see it here do not go on without those that have left already.
            with suppress(RecordError), self._page() as page:
                page.abort(
                    AbortWords(what="it was stopped on all hosts", by=str(words.get("by", "")))
                )
            # The root's launcher serves the others, mostly: it is the last.
            is_last = self._tree is not None and self._tree.is_root
            wait_ns = _STOP_LAST_NS if is_last else 0
            self._stop = (time.monotonic_ns() + wait_ns, words.get("kill") is True)
            self._stop_when_due(time.monotonic_ns())
            return True
        with self._page() as page:
            match do:
                case "pause":
                    return page.pause()
                case "resume":
                    return page.resume()
                case "abort":
                    return page.abort(AbortWords.from_json(json.dumps(words)))
                case "arm":
                    page.arm(json.dumps(words).encode())
                    self._armed = words
                case "disarm":
                    page.arm(b"")
                    self._armed = {}
        return True

    def _read(self) -> ControlState | None:
        if self._folder is None:
            return None
        try:
            return read_page(self._folder, self._host)
        except RecordError:
            return None

    @contextmanager
    def _page(self) -> Iterator[ControlPage]:
        # Held for a moment only: where a run follows another in one folder, its ranks must not find
        # the page in use by an agent that is about to leave.
        if self._folder is None:
            raise RecordError("no control page: no rank was started")
        page = ControlPage.open(self._folder, self._host, self._run)
        try:
            yield page
        finally:
            page.close()


def plain_hold(hold: Hold, now_ns: int) -> dict[str, Any]:
    """A hold for the API: who holds the clock, and for how long."""
    kind = {USER: "user", OTHER_HOST: "another host"}.get(hold.rank, "rank")
    return {
        "kind": kind,
        "rank": hold.rank if hold.is_of_rank else None,
        "pid": hold.pid or None,
        "since_s": round(max(0, now_ns - hold.since_ns) / 1e9, 3),
    }
