"""One node of the tree: what comes over its links, what goes out, without a socket or a clock. Pure.

    links    attach_parent, attach_child, detach; receive(link, message); send() -> [(link, message)]
    host     report(rows), put_account(account), request_accounts(ranks),
             order(...), orders(), acknowledge(order)
             keeps.keep(...), keeps.take_news()

Messages are those of `messages.py`.

A parent divides its budget among its children, by the ranks behind each: bytes for the network, rows for
its own time. So the root never hears more than that, whatever happens below; and as every node sends
only the last of what has piled up, nothing queues.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from distdbg.follow.status import RankStatus
from distdbg.hosts.accounts import AccountRequest, Accounts, HostAccountState
from distdbg.hosts.clock import HERE, Exchanges, Offset
from distdbg.hosts.gather import OWN, Gathering
from distdbg.hosts.messages import (
    BadMessage,
    pack_message,
    read_counts,
    read_whole,
    unpack_message,
)
from distdbg.hosts.orders import Do, Order, OrderLog, UnnumberedOrder
from distdbg.hosts.pipes import NoWay, Pipes, PipeTarget
from distdbg.hosts.status_rows import (
    HOST_SCHEMA,
    LEFT,
    RANK_SCHEMA,
    HostStatusRow,
    RankStatusRow,
    read_rows,
    to_row,
)
from distdbg.hosts.tail_sampling import KeptOps
from distdbg.hosts.updates import MIN_PERIOD_NS, Child, Pace

_S: Final = 1_000_000_000
#: What all links together may bring a node each second: bytes, and rows at some 3 us each.
MAX_NBYTES_S: Final = 400_000
MAX_ROWS_S: Final = 60_000
MAX_WORDS_NBYTES: Final = 64 << 10
_NEVER: Final = 2**63 - 1
_FIRST_PINGS: Final = 8
_FIRST_PING_NS: Final = 20_000_000
PING_NS: Final = _S
_ASK_AGAIN_NS: Final = _S
_ALONE_NS: Final = 2 * _S
_DEAL_NS: Final = _S
_COUNTS_NS: Final = 100_000_000
_MAX_WAITING: Final = 64
_MAX_COUNTS: Final = 16


class Node:
    """The state of one node. Times are this host's own; `now_ns` never goes back."""

    def __init__(self, node: int, host: str, *, salt: str = "") -> None:
        self.node = node
        self.host = host
        self.rows = Gathering(is_root=node == 0)
        self.accounts = Accounts(is_root=node == 0)
        self.pipes = Pipes(node, host, self._find_way)
        self.account_request = AccountRequest()
        self.keeps = KeptOps()
        self._salt = salt
        self._log = OrderLog()
        self._orders: deque[Order] = deque()
        self._asks: dict[str, UnnumberedOrder] = {}
        self._ticket = 0
        self._counts: list[Any] = []
        self._counts_ns = 0
        self._counted = (-1, -1)
        self._parent: int | None = None
        self._children: dict[int, Child] = {}
        self._dealt_ns = -_S
        self._out: list[tuple[int, bytes]] = []
        self._pace = Pace()
        self._exchanges = Exchanges()
        self._parent_offset: Offset | None = HERE if node == 0 else None
        self._ping_ns = 0
        self._pings = 0
        self._epoch = 0
        self._has_row = False
        self.touched = 0
        """Grows with every order or host that came or went: whoever looks then finds something new."""

    @property
    def is_root(self) -> bool:
        return self.node == 0

    @property
    def parent(self) -> int | None:
        return self._parent

    @property
    def seen(self) -> int:
        return self._log.last

    # Links --------------------------------------------------------------------------------------

    def attach_parent(self, link: int, now_ns: int) -> None:
        """There is a way up; it knows nothing of what this node knows."""
        self._parent = link
        self._epoch += 1
        self._exchanges = Exchanges()
        self._parent_offset = None
        self._pings, self._ping_ns = 0, now_ns
        self._pace = Pace()
        self._put_own(now_ns)
        self.rows.host_updates.forget(self.rows.hosts)
        self.rows.rank_updates.forget(self.rows.ranks)
        self.accounts.forget()
        self.keeps.add_link(link)
        self._send(link, {"seen": [self._log.last]})
        for ask in self._asks.values():
            ask.again_ns = now_ns

    def attach_child(self, link: int) -> None:
        self._children[link] = Child()
        self.rows.add_link(link)
        self.keeps.add_link(link)
        self._dealt_ns = -_S

    def detach(self, link: int, now_ns: int) -> None:
        """The link is gone; what it told stays, as old as it is."""
        if link == self._parent:
            self._parent = None
        elif self._children.pop(link, None) is not None:
            self.rows.drop_link(link, now_ns)
            self._dealt_ns = -_S
            self.touched += 1
        self._out = [(to, message) for to, message in self._out if to != link]
        self.keeps.drop_link(link)
        self.pipes.drop_link(link)

    def receive(self, link: int, message: bytes, now_ns: int) -> None:
        """BadMessage when the link is to be cut."""
        if self.pipes.is_frame(message):
            if link == self._parent or link in self._children:
                self.pipes.receive(link, message)
            return
        words = unpack_message(message)
        try:
            if "keep" in words:
                self.keeps.take(link, words.pop("keep"))
            if link == self._parent:
                self._receive_from_parent(words, now_ns)
            elif link in self._children:
                self._receive_from_child(link, words, now_ns)
        except (ValueError, TypeError) as error:
            raise BadMessage(str(error)) from error

    def _receive_from_child(self, link: int, words: dict[str, Any], now_ns: int) -> None:
        reported = self.rows.links[link]
        for what, value in words.items():
            if what == "hosts":
                hosts = read_rows(HOST_SCHEMA, HostStatusRow, value, reported.hosts, now_ns)
                before = self.rows.version
                self.rows.take_hosts(link, hosts, now_ns)
                self.touched += self.rows.version != before
            elif what == "ranks":
                ranks = read_rows(RANK_SCHEMA, RankStatusRow, value, reported.ranks, now_ns)
                self.rows.take_ranks(link, ranks)
            elif what == "accounts":
                self.touched += self.accounts.take(value, now_ns)
            elif what == "ping":
                (asked_ns,) = read_whole(value, 1)
                offset = self.offset(now_ns)
                self._send(link, {"pong": [asked_ns, now_ns, *(offset or (0, 0))]})
            elif what == "ask":
                self._pass_on(Order.from_json(value))
            elif what == "seen":
                (seen,) = read_whole(value, 1)
                if self.is_root:
                    self._log.catch_up(seen)
                for order in self._log.since(seen):
                    self._send(link, {"order": order.to_json()})

    def _receive_from_parent(self, words: dict[str, Any], now_ns: int) -> None:
        for what, value in words.items():
            if what == "pong":
                asked_ns, heard_ns, offset_ns, error_ns = read_whole(value, 4)
                self._exchanges.add(asked_ns, heard_ns, heard_ns, now_ns)
                self._parent_offset = Offset(offset_ns, error_ns) if error_ns > 0 else None
            elif what == "order":
                self._take_order(Order.from_json(value))
            elif what == "vouch":
                self._hear_request(AccountRequest.from_json(value))
            elif what == "counts":
                self._counts = read_counts(value)
            elif what == "pace":
                nbytes_s, rows_s, period_ns = read_whole(value, 3)
                self._pace.nbytes_s, self._pace.rows_s = max(100, nbytes_s), max(10, rows_s)
                self._pace.period_ns = min(2 * _S, max(MIN_PERIOD_NS, period_ns))

    # The own host -------------------------------------------------------------------------------

    def report(self, statuses: Sequence[RankStatus], now_ns: int) -> None:
        """The rows of this host, as they are now."""
        self.report_rows({s.rank: to_row(s, self.node, now_ns) for s in statuses}, now_ns)

    def report_rows(self, rows: dict[int, RankStatusRow], now_ns: int) -> None:
        """`report` of rows that are made already."""
        if not self._has_row:
            self._put_own(now_ns)
        known = self.rows.ranks
        changed = {rank: row for rank, row in rows.items() if known.get(rank) != row}
        if changed:
            self.rows.take_ranks(OWN, changed)

    def put_account(self, account: dict[str, Any], request: int, now_ns: int) -> None:
        """What the ranks of this host wait in, made now and after the request of this number had come."""
        self.accounts.put(self.node, account, request, now_ns)

    def request_accounts(self, ranks: Iterable[int]) -> int:
        """At the root: let all hosts say again where their ranks stand; the number of the request.

        `ranks` are those that are about to be named as the cause.
        """
        self._hear_request(self.account_request.next(ranks))
        return self.account_request.number

    def received_accounts(self) -> list[HostAccountState]:
        """The accounts of the other hosts that are in touch."""
        hosts = self.rows.hosts
        return [
            reported
            for reported in self.accounts
            if reported.node != self.node
            and reported.node in hosts
            and not hosts[reported.node].is_lost
        ]

    def order(self, do: Do, words: dict[str, Any], now_ns: int) -> str:
        """Order it of all hosts; the ticket to ask for by. ValueError when it is too long.

        When the root does not answer, it is done on this host at least, and on all when it does.
        """
        if len(json.dumps(words)) > MAX_WORDS_NBYTES:
            raise ValueError(f"an order holds at most {MAX_WORDS_NBYTES:,} bytes")
        self._ticket += 1
        ticket = f"{self.node}-{self._salt}-{self._ticket}"
        order = Order(ticket=ticket, do=do, words=words)
        if self.is_root:
            self._pass_on(order)
        elif len(self._asks) < _MAX_WAITING:
            self._asks[ticket] = UnnumberedOrder(order, now_ns, now_ns)
        return ticket

    def orders(self) -> list[Order]:
        """What is to be done on this host, in this order."""
        orders = list(self._orders)
        self._orders.clear()
        return orders

    def acknowledge(self, order: Order, now_ns: int) -> None:
        """It is done here."""
        own = self.rows.links[OWN].hosts.get(self.node)
        if own is None or own.done < order.number:
            self._put_own(now_ns, done=order.number)

    def acknowledged(self, ticket: str) -> tuple[int, int] | None:
        """How many hosts have done it, of how many that are in touch; None: the root has not seen it."""
        number = self._log.number_of(ticket)
        if number is None:
            return None
        if self.is_root:
            return self._done(number), self._in_touch()
        if not self._counts:
            return 0, 0
        done: dict[int, int] = dict(self._counts[1])
        return done.get(number, 0), self._counts[0]

    def leave(self, now_ns: int) -> None:
        """Say that this agent ends; the last thing to say."""
        self._put_own(now_ns, is_lost=LEFT)
        self._pace.end()

    def offset(self, now_ns: int) -> Offset | None:
        """From this host's clock to the root's."""
        if self.is_root:
            return HERE
        own = self._exchanges.best(now_ns)
        if own is None or self._parent_offset is None:
            return None
        return own.beyond(self._parent_offset)

    # What goes out ------------------------------------------------------------------------------

    def send(self, now_ns: int, *, can_send_up: bool = True) -> list[tuple[int, bytes]]:
        """The messages that are due. can_send_up: False while the parent does not read."""
        if not self._has_row:
            self._put_own(now_ns)
        if now_ns - self._dealt_ns >= _DEAL_NS:
            self._deal(now_ns)
        if self.is_root:
            self._count(now_ns)
        if self._children:
            self._pass_counts()
        for link, batch in self.keeps.batches(now_ns):
            self._send(link, {"keep": batch})
        for ask in self._asks.values():
            if not ask.is_given and now_ns - ask.since_ns >= _ALONE_NS:
                ask.is_given = True
                self._orders.append(ask.order)
                self.touched += 1
        if self._parent is not None:
            self._send_up(self._parent, now_ns, can_send_up)
        out, self._out = self._out, []
        return out

    def due_ns(self, now_ns: int) -> int:
        """When `send` has something to do at the latest."""
        if self._out:
            return now_ns
        due = self._dealt_ns + _DEAL_NS if self._children else _NEVER
        if (keeps_ns := self.keeps.due_ns()) is not None:
            due = min(due, keeps_ns)
        if self.is_root and self._counts_dirty():
            due = min(due, self._counts_ns + _COUNTS_NS)
        for ask in self._asks.values():
            due = min(due, _NEVER if ask.is_given else ask.since_ns + _ALONE_NS)
        if self._parent is None:
            return due
        due = min(due, self._ping_ns, *(ask.again_ns for ask in self._asks.values()))
        ranks, hosts = self.rows.rank_updates, self.rows.host_updates
        if ranks.has_news or hosts.has_news:
            due = min(due, self._pace.news_ns())
        if ranks.has_changes or hosts.has_changes:
            due = min(due, self._pace.changes_ns())
        if ranks.has_slight:
            due = min(due, self._pace.slight_ns())
        if self.accounts.has_due:
            due = min(due, self._pace.news_ns())
        return due

    def _send_up(self, parent: int, now_ns: int, can_send_up: bool) -> None:
        if now_ns >= self._ping_ns:
            self._send(parent, {"ping": [now_ns]})
            self._pings += 1
            self._ping_ns = now_ns + (_FIRST_PING_NS if self._pings < _FIRST_PINGS else PING_NS)
        for ask in self._asks.values():
            if now_ns >= ask.again_ns:
                self._send(parent, {"ask": ask.order.to_json()})
                ask.again_ns = now_ns + _ASK_AGAIN_NS
        if not can_send_up:
            return
        ranks, hosts = self.rows.rank_updates, self.rows.host_updates
        if now_ns >= self._pace.slight_ns():
            self._pace.on_slight(now_ns)
            ranks.hurry()
        has_news = (ranks.has_news or hosts.has_news) and now_ns >= self._pace.news_ns()
        has_turn = now_ns >= self._pace.changes_ns()
        if self.accounts.has_due and now_ns >= self._pace.news_ns():
            self._send_accounts(parent, now_ns)
        if not has_turn and not has_news:
            return
        most = self._pace.most_rows()
        words = {
            "hosts": hosts.take(self.rows.hosts, now_ns, most, only_news=not has_turn),
            "ranks": ranks.take(self.rows.ranks, now_ns, most, only_news=not has_turn),
        }
        words = {what: batch for what, batch in words.items() if batch is not None}
        if words:
            message = pack_message(words)
            self._out.append((parent, message))
            rows = sum(sum(batch[0][1::2]) for batch in words.values() if batch is not None)
            self._pace.on_sent(len(message) + 4, rows, now_ns)

    def _send_accounts(self, parent: int, now_ns: int) -> None:
        message = pack_message({"accounts": self.accounts.batch(now_ns)})
        self._out.append((parent, message))
        self._pace.on_sent(len(message) + 4, 0, now_ns)

    def _deal(self, now_ns: int) -> None:
        """Divide the budget among the children, by how many ranks each tells of."""
        self._dealt_ns = now_ns
        weights = {link: 8 + len(self.rows.links[link].ranks) for link in self._children}
        total = sum(weights.values())
        # A node that must wait itself gains nothing from hearing more often.
        period_ns = MIN_PERIOD_NS
        if self._parent is not None:
            period_ns = max(period_ns, int(self._pace.gap_ns / 2))
        for link, child in self._children.items():
            # Half of it evenly: one that has just come has told of nothing yet.
            share = 0.5 / len(weights) + 0.5 * weights[link] / total
            nbytes_s, rows_s = int(MAX_NBYTES_S * share), int(MAX_ROWS_S * share)
            if abs(nbytes_s - child.nbytes_s) > child.nbytes_s // 8 or (
                abs(period_ns - child.period_ns) > child.period_ns // 4
            ):
                child.nbytes_s, child.rows_s, child.period_ns = nbytes_s, rows_s, period_ns
                self._send(link, {"pace": [nbytes_s, rows_s, period_ns]})

    # Orders -------------------------------------------------------------------------------------

    def _pass_on(self, order: Order) -> None:
        if not self.is_root:
            if self._parent is not None:
                self._send(self._parent, {"ask": order.to_json()})
            return
        numbered = self._log.give_number(order)
        if numbered is not None:
            self._take_order(numbered)

    def _take_order(self, order: Order) -> None:
        self._asks.pop(order.ticket, None)
        if self._log.add(order):
            self._orders.append(order)
            self.touched += 1
            for link in self._children:
                self._send(link, {"order": order.to_json()})

    def _hear_request(self, request: AccountRequest) -> None:
        if not self.is_root and request.number <= self.account_request.number:
            return
        self.account_request = request
        self.touched += 1
        for link in self._children:
            self._send(link, {"vouch": request.to_json()})

    def _done(self, number: int) -> int:
        return sum(host.done >= number for host in self.rows.hosts.values() if not host.is_lost)

    def _in_touch(self) -> int:
        return sum(not host.is_lost for host in self.rows.hosts.values())

    def _counts_dirty(self) -> bool:
        return self._log.last > 0 and self._counted != (self.rows.version, self._log.last)

    def _count(self, now_ns: int) -> None:
        """Tell all how far the last orders have come; the root's part."""
        if self._counts_dirty() and now_ns - self._counts_ns >= _COUNTS_NS:
            self._counts_ns = now_ns
            self._counted = (self.rows.version, self._log.last)
            numbers = range(max(1, self._log.last - _MAX_COUNTS + 1), self._log.last + 1)
            self._counts = [self._in_touch(), [[n, self._done(n)] for n in numbers]]

    def _pass_counts(self) -> None:
        for link, child in self._children.items():
            if child.counts != self._counts:
                child.counts = self._counts
                self._send(link, {"counts": self._counts})

    def _find_way(self, target: PipeTarget) -> int:
        """The link to it, OWN for this host; upwards, unless it is known to be below. NoWay."""
        node: int | None = None
        if target.rank is not None:
            row = self.rows.ranks.get(target.rank)
            node = None if row is None else row.node
        elif target.host == self.host:
            return OWN
        else:
            named = [n for n, row in self.rows.hosts.items() if row.host == target.host]
            node = next((n for n in named if self.rows.link_to(n) is not None), None)
        link = None if node is None else self.rows.link_to(node)
        if link is not None:
            return link
        if self.is_root:
            raise NoWay(f"no agent of {target} is in touch")
        if self._parent is None:
            raise NoWay(f"the agent of host {self.host} is not in touch with those of other hosts")
        return self._parent

    # Parts --------------------------------------------------------------------------------------

    def _put_own(self, now_ns: int, *, done: int | None = None, is_lost: int = 0) -> None:
        self._has_row = True
        own = self.rows.links[OWN].hosts.get(self.node)
        row = HostStatusRow(
            host=self.host,
            epoch=self._epoch,
            is_lost=is_lost,
            since_ns=now_ns if own is None or is_lost or own.epoch != self._epoch else own.since_ns,
            done=done if done is not None else own.done if own else 0,
        )
        self.rows.take_hosts(OWN, {self.node: row}, now_ns)

    def _send(self, link: int, words: dict[str, Any]) -> None:
        self._out.append((link, pack_message(words)))
