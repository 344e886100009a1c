"""This host's place in the tree of the job's agents: a node, and the thread that moves bytes (`loop.py`).

    agent's loop              thread "tree"                         thread "find"
    report, send_order  --->  Node: what is known and what is due
    orders, view        <---  links up and down, selectors      <-- addresses, from the job's store

Nothing here makes the agent wait, and no failure of a network or a store is raised: whoever cannot be
reached is missing from the view, and is looked for again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from distdbg.hosts.accounts import AccountRequest, HostAccountState
from distdbg.hosts.finding import own_address, store_folder, store_opener
from distdbg.hosts.job_view import JobView, make_view
from distdbg.hosts.loop import Loop
from distdbg.hosts.node import Node
from distdbg.hosts.orders import Do, Order
from distdbg.hosts.parent_choice import FAN_IN
from distdbg.hosts.pipe_ends import PipedClient, PipeMail
from distdbg.hosts.pipes import NoWay, PipeKey, PipeTarget
from distdbg.hosts.status_rows import LOST, is_in
from distdbg.hosts.tail_sampling import KeptOp

if TYPE_CHECKING:
    from distdbg.follow.status import RankStatus
    from distdbg.hosts.clock import Offset
    from distdbg.record.rank_state import RankState


class Tree:
    """One agent in one round of the job. Thread-safe; `close` it when the round is over."""

    def __init__(
        self,
        host: str,
        nodes: int,
        node_rank: int,
        store_url: str,
        token: bytes,
        *,
        run: str = "",
        round_number: int = 0,
        addr: str | None = None,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        fan_in: int = FAN_IN,
    ) -> None:
        """addr: what the other hosts know this one by, see `finding.own_address`. ValueError for a
        node or a URL that cannot be, and for no token: it is all that keeps strangers out."""
        if not 0 <= node_rank < nodes:
            raise ValueError(f"node {node_rank} is none of {nodes}")
        if nodes > 1 and not token:
            raise ValueError("agents of several hosts need the run's token")
        self.clock_ns = clock_ns
        self.lock = threading.Lock()  # protects node
        self.node = Node(node_rank, host, salt=secrets.token_hex(4))
        self._touched = 0
        self._pipe_mail: list[PipeMail] = []  # from the tree's thread; append and pop are atomic
        self._reported = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop: Loop | None = None
        if nodes > 1:
            try:
                opener = store_opener(store_url, token)
                self._loop = Loop(self, token, f"{run}/{round_number}", fan_in, nodes)
            except BaseException:
                os.close(self._reported)
                raise
            self._loop.start(
                opener,
                f"{store_folder(store_url)}/{round_number}",
                lambda: own_address(addr or host, store_url),
            )

    @property
    def is_root(self) -> bool:
        return self.node.is_root

    @property
    def is_attached(self) -> bool:
        """Whether there is a way to the root; the root has one."""
        return self.is_root or self.node.parent is not None

    def fileno(self) -> int:
        """Readable when orders have come, or hosts came or went; `orders` makes it quiet again."""
        return self._reported

    def report(self, rows: Sequence[RankStatus], now_ns: int | None = None) -> None:
        """The ranks of this host as they are now; what has not changed costs nothing."""
        with self.lock:
            self.node.report(rows, self.clock_ns() if now_ns is None else now_ns)
        self._wake()

    def put_account(self, account: dict[str, Any], request: int = 0) -> None:
        """Where the ranks of this host wait (`judging.account`), for whoever judges the whole job."""
        with self.lock:
            self.node.put_account(account, request, self.clock_ns())
        self._wake()

    def request_accounts(self, ranks: Sequence[int]) -> int:
        """At the root: let all hosts tell it again, and how it is with these ranks."""
        with self.lock:
            number = self.node.request_accounts(ranks)
        self._wake()
        return number

    def account_request(self) -> AccountRequest:
        with self.lock:
            return self.node.account_request

    def accounts(self) -> list[HostAccountState]:
        """At the root: what the other hosts that are in touch have told last."""
        with self.lock:
            return self.node.received_accounts()

    def send_order(self, do: Do, words: dict[str, Any] | None = None) -> str:
        """Order it of all hosts, this one included; the ticket for `acknowledged`.

        It is sent again until the root has it. ValueError when it is too long.
        """
        with self.lock:
            ticket = self.node.order(do, words or {}, self.clock_ns())
        self._wake()
        return ticket

    def orders(self) -> list[Order]:
        """What is to be done on this host now, in this order."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._reported)
        with self.lock:
            return self.node.orders()

    def acknowledge(self, order: Order) -> None:
        """It is done on this host."""
        with self.lock:
            self.node.acknowledge(order, self.clock_ns())
        self._wake()

    def acknowledged(self, ticket: str) -> tuple[int, int] | None:
        """(hosts that have done it, hosts in touch); None: it has not come to the root and back."""
        with self.lock:
            return self.node.acknowledged(ticket)

    def keep(self, keeps: Iterable[KeptOp]) -> None:
        """Have all other hosts keep the spans of these ops."""
        with self.lock:
            self.node.keeps.keep(keeps)
        self._wake()

    def kept(self) -> list[KeptOp]:
        """Those that others have told of since this was asked last."""
        with self.lock:
            return self.node.keeps.take_news()

    def open_pipe(self, target: PipeTarget) -> PipeKey | None:
        """Begin a pipe to another host's agent; `pipe_mail` says what became of it. NoWay.

        None: it is this host's.
        """
        if self._loop is None:
            raise NoWay("the job has one host")
        with self.lock:
            key = self.node.pipes.open(target)
        self._wake()
        return key

    def join_pipe(self, key: PipeKey, sock: socket.socket, unwritten: bytes, unsent: bytes) -> None:
        """Give a client to a pipe that was accepted; its socket is the tree's from now on.

        unwritten: what it has still to get before; unsent: what it has said already.
        """
        if self._loop is None:
            sock.close()
        else:
            self._loop.post_join(key, sock, unwritten, unsent)

    def end_pipe(self, key: PipeKey) -> None:
        """Nobody will join it."""
        if self._loop is not None:
            self._loop.post_join(key, None, b"", b"")

    def pipe_mail(self) -> list[PipeMail]:
        """What has become of pipes; look when `fileno` is readable."""
        found = []
        while self._pipe_mail:
            found.append(self._pipe_mail.pop(0))
        return found

    def post(self, mail: PipeMail) -> None:
        """For the tree's thread: tell the agent's loop."""
        self._pipe_mail.append(mail)
        os.eventfd_write(self._reported, 1)

    def view(self) -> JobView:
        """At the root, all of the job; elsewhere, what is below."""
        with self.lock:
            hosts, ranks = dict(self.node.rows.hosts), dict(self.node.rows.ranks)
        return make_view(hosts, ranks, self.clock_ns())

    def hosts_in(self, state: RankState) -> frozenset[str]:
        """The hosts in touch that have a rank in this state, as far as `view` goes."""
        with self.lock:
            hosts = self.node.rows.hosts
            nodes = {row.node for row in self.node.rows.ranks.values() if is_in(row, state)}
            return frozenset(hosts[n].host for n in nodes if n in hosts and not hosts[n].is_lost)

    def hosts(self) -> dict[str, bool]:
        """Those whose agents have not left in good order, and whether each is lost; as far as `view` goes."""
        with self.lock:
            rows = list(self.node.rows.hosts.values())
        return {row.host: row.is_lost == LOST for row in rows if row.is_lost <= LOST}

    def offset(self) -> Offset | None:
        """From this host's monotonic clock to the root's; None: not estimated."""
        with self.lock:
            return self.node.offset(self.clock_ns())

    def close(self) -> None:
        """Leave the tree. Idempotent."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None
        for mail in self.pipe_mail():
            if isinstance(mail, PipedClient):
                mail.socket.close()
        if self._reported >= 0:
            os.close(self._reported)
            self._reported = -1

    def _wake(self) -> None:
        if self._loop is not None:
            self._loop.wake()
        self.wake_agent()

    def wake_agent(self) -> None:
        """For the tree's thread, with the lock held or not: wake the agent's loop when it has to look."""
        if self.node.touched != self._touched:
            self._touched = self.node.touched
            os.eventfd_write(self._reported, 1)
