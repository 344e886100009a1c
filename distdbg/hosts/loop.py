"""The thread that moves the bytes of the tree: links up and down, addresses, the ends of pipes.

It and the agent's loop share the node, under a lock, and leave each other mail.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from distdbg.hosts.finding import Address, Directory
from distdbg.hosts.handshake import Handshake
from distdbg.hosts.links import NEEDS_TLS, Link, LinkLost, connect, hurry, listen, secure
from distdbg.hosts.messages import BadMessage
from distdbg.hosts.node import Node
from distdbg.hosts.parent_choice import ParentChoice, ancestors
from distdbg.hosts.pipe_ends import PipeEnd, PipeEnds, PipeMail
from distdbg.hosts.pipes import PipeKey
from distdbg.secure.guard import open_guard

if TYPE_CHECKING:
    from distdbg.runtime.store import Store

_log = logging.getLogger("distdbg.agent")

_S: Final = 1_000_000_000
_LONGEST_WAIT_NS: Final = _S
_MIN_WAIT_NS: Final = 1_000_000
_MAX_CHILDREN: Final = 1024
_MAX_STRANGERS: Final = 64
_MAX_COMPLAINTS: Final = 32
_CLOSE_S: Final = 2.0


class LoopState(Protocol):
    """What this thread shares with the agent's loop (place.py)."""

    @property
    def node(self) -> Node: ...
    @property
    def lock(self) -> threading.Lock:
        """Protects the node."""
        ...

    @property
    def clock_ns(self) -> Callable[[], int]: ...
    def post(self, mail: PipeMail) -> None:
        """Tell the agent's loop."""
        ...

    def wake_agent(self) -> None:
        """Wake the agent's loop when it has to look."""
        ...


class Loop:
    """The thread with the sockets."""

    def __init__(
        self, tree: LoopState, token: bytes, meeting: str, fan_in: int, nodes: int
    ) -> None:
        self._tree = tree
        self._node = tree.node
        self._lock = tree.lock
        self._token = token
        self._guard = open_guard(token, notice=NEEDS_TLS)
        self._meeting = meeting
        self._fan_in = fan_in
        self._links: dict[int, Link] = {}
        self._ascent = ParentChoice(self._node.node, tree.clock_ns(), fan_in, nodes)
        self._climbing: tuple[int, int] | None = None  # link and ancestor
        self._above: tuple[int, int] | None = None  # the same, when it is attached
        self._address = ""
        self._listener: socket.socket | None = None
        self._next_link = 1
        self._complaints: set[str] = set()
        self._mail: list[str | dict[int, Address]] = []  # from the thread "find"; append is atomic
        self._joins: list[tuple[PipeKey, socket.socket | None, bytes, bytes]] = []  # the same
        self._is_closed = False
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._ends = PipeEnds(
            self._node.node, self._node.pipes, self._lock, self._selector, tree.post
        )
        self._thread = threading.Thread(target=self._run, name="distdbg-agent-tree", daemon=True)
        self._directory: Directory | None = None

    def start(
        self, open_store: Callable[[], Store], folder: str, locate: Callable[[], str]
    ) -> None:
        self._directory = Directory(
            open_store, folder, locate=locate, on_located=self._post, on_found=self._post
        )
        self._directory.want(self._ascent.wanted())
        self._thread.start()

    def wake(self) -> None:
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        self._thread.join(_CLOSE_S)
        if self._directory is not None:
            self._directory.close()
        if not self._thread.is_alive():
            os.close(self._bell)

    def _post(self, what: str | dict[int, Address]) -> None:
        if self._is_closed:
            return
        self._mail.append(what)
        self.wake()

    def post_join(
        self, key: PipeKey, sock: socket.socket | None, unwritten: bytes, unsent: bytes
    ) -> None:
        self._joins.append((key, sock, unwritten, unsent))
        self.wake()

    # The loop -----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._turn()
            with self._lock:
                self._node.leave(self._tree.clock_ns())
            self._send_due()
        except Exception:  # noqa: BLE001  # an observer that fails is dropped, and says so once
            _log.exception("the tree of agents stops on this host")
        finally:
            for link in self._links.values():
                link.close()
            self._links.clear()
            self._ends.close(f"the agent of host {self._node.host} leaves this start of the ranks")
            for _, sock, _, _ in self._joins:
                if sock is not None:
                    sock.close()
            if self._listener is not None:
                self._listener.close()
            self._selector.close()
            if self._guard is not None:
                self._guard.close()

    def _turn(self) -> None:
        self._read_mail()
        self._ends.turn(self._tree.clock_ns())
        self._climb()
        due_ns = self._send_due()
        now_ns = self._tree.clock_ns()
        for link in list(self._links.values()):
            try:
                link.check(now_ns)
            except LinkLost as lost:
                self._lose(link, lost)
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.wants_write else 0)
            if self._selector.get_key(link).events != events:
                self._selector.modify(link, events)
            due_ns = min(due_ns, link.deadline_ns + 1)
        wait_ns = min(_LONGEST_WAIT_NS, max(_MIN_WAIT_NS, due_ns - now_ns))
        for key, mask in self._selector.select(wait_ns / _S):
            if key.fileobj == self._bell:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._bell)
            elif key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, Link) and key.fileobj.number in self._links:
                self._serve(key.fileobj, mask)
            elif isinstance(key.data, PipeEnd):
                self._ends.serve(key.data, mask)

    def _send_due(self) -> int:
        """Give the links what is due; when the next will be."""
        now_ns = self._tree.clock_ns()
        above = self._links.get(self._above[0]) if self._above else None
        is_stuck = above is not None and above.is_stuck
        with self._lock:
            out = self._node.send(now_ns, can_send_up=not is_stuck)
            bulk = self._node.pipes.take_out()
            due_ns = self._node.due_ns(now_ns)
            self._tree.wake_agent()
        for number, message in out:
            if number in self._links:
                self._links[number].write(message)
        for number, message in bulk:
            if number in self._links:
                self._links[number].write_bulk(message)
        for link in list(self._links.values()):
            if link.wants_write and not link.is_connecting:
                try:
                    link.flush()
                except LinkLost as lost:
                    self._lose(link, lost)
        if is_stuck:  # its socket says when there is room
            due_ns = max(due_ns, now_ns + _S // 20)
        if self._node.node:
            due_ns = min(due_ns, self._ascent.due_ns(now_ns))
        return due_ns

    def _serve(self, link: Link, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                link.flush()
            if mask & selectors.EVENT_READ and not link.is_connecting:
                was_open = link.is_open
                now_ns = self._tree.clock_ns()
                messages = link.read(now_ns)
                if link.is_open and not was_open:
                    self._admit(link, now_ns)
                for message in messages:
                    with self._lock:
                        self._node.receive(link.number, message, now_ns)
        except LinkLost as lost:
            self._lose(link, lost)
        except BadMessage as error:
            self._lose(link, LinkLost(f"it says what no agent says: {error}", is_wrong=True))

    # Links --------------------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            sock, peer = self._listener.accept()
        except OSError:
            return
        strangers = sum(not link.is_open for link in self._links.values())
        if strangers >= _MAX_STRANGERS or len(self._links) >= _MAX_CHILDREN:
            self._complain(f"{peer[0]} is turned away: too many connections")
            sock.close()
            return
        sock.setblocking(False)
        hurry(sock)
        sock = secure(sock, self._guard, is_server=True)
        self._add(sock, Handshake(self._token, self._meeting, None), str(peer[0]))

    def _add(self, sock: socket.socket, handshake: Handshake, peer: str) -> Link:
        link = Link(self._next_link, sock, handshake, peer, self._tree.clock_ns())
        self._next_link += 1
        self._links[link.number] = link
        self._selector.register(link, selectors.EVENT_READ | selectors.EVENT_WRITE)
        return link

    def _admit(self, link: Link, now_ns: int) -> None:
        """Both ends have proven themselves."""
        if link.is_up:
            assert self._climbing is not None
            (_, ancestor), self._climbing = self._climbing, None
            if self._above is not None:  # somebody better has been found
                former = self._links.get(self._above[0])
                if former is not None:
                    self._drop(former)
            self._above = (link.number, ancestor)
            self._ascent.on_attached(ancestor, now_ns)
            with self._lock:
                self._node.attach_parent(link.number, now_ns)
            self._want()
            return
        child = link.handshake.node
        assert child is not None
        if self._node.node not in ancestors(child, self._fan_in):
            raise LinkLost(f"node {child} does not belong below {self._node.node}", is_wrong=True)
        for other in list(self._links.values()):
            is_same = not other.is_up and other.is_open and other.handshake.node == child
            if is_same and other is not link:  # the child knows better whether that one still lives
                self._drop(other)
        with self._lock:
            self._node.attach_child(link.number)

    def _lose(self, link: Link, lost: LinkLost) -> None:
        if link.is_up and not link.is_connecting and not link.is_open and not self._is_closed:
            self._complain(f"the agent at {link.peer} does not take this one in: {lost}")
        elif lost.is_wrong:
            self._complain(f"the link with {link.peer} is cut: {lost}")
        else:
            _log.debug("the link with %s has ended: %s", link.peer, lost)
        now_ns = self._tree.clock_ns()
        for held in (self._climbing, self._above):
            if held is not None and held[0] == link.number:
                self._ascent.on_failed(held[1], now_ns)
        self._drop(link)
        self._want()

    def _drop(self, link: Link) -> None:
        if self._climbing is not None and self._climbing[0] == link.number:
            self._climbing = None
        if self._above is not None and self._above[0] == link.number:
            self._above = None
        if self._links.pop(link.number, None) is None:
            return
        self._selector.unregister(link)
        link.close()
        with self._lock:
            self._node.detach(link.number, self._tree.clock_ns())
            self._tree.wake_agent()

    def _complain(self, text: str) -> None:
        if text not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
            self._complaints.add(text)
            _log.warning("%s", text)

    # The way up ---------------------------------------------------------------------------------

    def _read_mail(self) -> None:
        while self._joins:
            key, sock, unwritten, unsent = self._joins.pop(0)
            if sock is None:
                self._ends.give_up(key)
            else:
                self._ends.join(key, sock, unwritten, unsent)
        while self._mail:
            mail = self._mail.pop(0)
            if isinstance(mail, dict):
                self._ascent.take(mail)
                self._want()
                continue
            self._address = mail
            try:
                self._listener = listen(mail)
            except OSError as error:
                self._complain(f"this agent cannot listen at {mail}: {error}")
                continue
            self._selector.register(self._listener, selectors.EVENT_READ)
            port = int(self._listener.getsockname()[1])
            if self._directory is not None:
                self._directory.publish(self._node.node, self._node.host, Address(mail, port))

    def _want(self) -> None:
        if self._directory is not None:
            self._directory.want(self._ascent.wanted())

    def _climb(self) -> None:
        if self._climbing is not None or not self._node.node or not self._address:
            return
        now_ns = self._tree.clock_ns()
        ancestor = self._ascent.choose(now_ns)
        if ancestor is None:
            return
        address = self._ascent.address(ancestor)
        try:
            sock = connect(address.address, address.port, self._address)
        except OSError as error:
            _log.debug("node %d at %s cannot be reached: %s", ancestor, address.address, error)
            self._ascent.on_failed(ancestor, now_ns)
            self._want()
            return
        sock = secure(sock, self._guard, is_server=False)
        link = self._add(
            sock, Handshake(self._token, self._meeting, self._node.node), address.address
        )
        self._climbing = (link.number, ancestor)
