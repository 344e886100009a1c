"""Server: the sockets of the ranks of this process, and the thread that answers there.

    <folder of the start>/debug-rank<N>.sock     one for each rank that can be reached

Only this user may connect. No client can block it or make it grow: lines and unread output are
bounded, and a client that breaks the protocol gets an error and is disconnected. The thread runs as long
as there is a socket or a client.
"""

from __future__ import annotations

import atexit
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.control import sockets
from distdbg.debugger import protocol
from distdbg.debugger.desk import PromptInput, TypedLine, not_debuggable
from distdbg.debugger.evaluate import shorten
from distdbg.debugger.evaluation import Evaluation
from distdbg.debugger.protocol import MalformedLine, Words

MAX_CLIENTS: Final = 32
#: What a client may leave unread, and for how long a rank that prints waits for it to read.
MAX_UNREAD_NBYTES: Final = 4 << 20
PATIENCE_S: Final = 10.0
#: How long a process that ends waits for its clients to hear of it.
_LAST_WORDS_S: Final = 1.0
#: How many expressions may be in work at a time beside a rank.
MAX_EVALUATIONS: Final = 8
_PEER: Final = struct.Struct("3i")

Evaluate = Callable[[str], dict[str, str]]


class Caller:
    def __init__(self, sock: socket.socket, place: RankSocket) -> None:
        self.socket = sock
        self.place = place
        self.name = ""
        """The client that is attached; '': none."""
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.is_leaving = False
        """It is dropped when it has read what there is."""
        self.is_gone = False
        self.evaluations: set[Evaluation] = set()


class RankSocket:
    def __init__(
        self, desk: PromptInput, path: Path, listening: socket.socket, evaluate: Evaluate
    ) -> None:
        self.desk = desk
        self.path = path
        self.listening = listening
        self.evaluate = evaluate
        self.inode = path.stat().st_ino
        self.attached: Caller | None = None
        self.evaluations = 0


class PromptServer:
    """One per process, made with the first rank that needs it."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.RLock()
        """Protects what follows and the outboxes."""
        self._drained = threading.Condition(self._lock)
        self._places: dict[int, RankSocket] = {}
        self._callers: set[Caller] = set()
        self._closing: list[RankSocket] = []
        self._thread: threading.Thread | None = None
        # What follows is there as long as the thread is.
        self._woken: socket.socket
        self._wake: socket.socket
        self._selector: selectors.BaseSelector

    # ------------------------------------------------------------------------- from ranks' threads

    def open(self, desk: PromptInput, folder: Path, evaluate: Evaluate) -> None:
        """Let clients come to this rank; ConfigError when its socket cannot be made."""
        path = folder / sockets.debugger_socket(desk.rank)
        listening = sockets.listen(path)
        with self._lock:
            place = self._places[desk.rank] = RankSocket(desk, path, listening, evaluate)
            for caller in self._callers:
                if caller.place.desk is desk:  # they have stayed while there was no socket
                    if caller.place.attached is caller:
                        place.attached = caller
                    caller.place = place
            if self._thread is None:
                self._woken, self._wake = socket.socketpair()
                self._woken.setblocking(False)
                self._wake.setblocking(False)
                self._selector = selectors.DefaultSelector()
                self._selector.register(self._woken, selectors.EVENT_READ)
                self._thread = threading.Thread(
                    target=self._run, name="distdbg debugger", daemon=True
                )
                self._thread.start()
        self._wake_up()

    def close(self, desk: PromptInput) -> None:
        """No new client comes to this rank; one that is attached stays until it leaves, or is told."""
        with self._lock:
            place = self._places.pop(desk.rank, None)
            if place is None:
                return
            _remove(place)
            self._closing.append(place)
        self._wake_up()

    def end(self, desk: PromptInput, why: str) -> None:
        """Say to all clients of this rank why there is nothing more, and drop them."""
        with self._lock:
            for caller in list(self._callers):
                if caller.place.desk is desk:
                    self._send(caller, {"ended": why})
                    caller.is_leaving = True
        self.close(desk)

    def detach(self, desk: PromptInput) -> None:
        """Let go of the client that is attached."""
        with self._lock:
            for caller in list(self._callers):
                if caller.place.desk is desk and caller.place.attached is caller:
                    self._send(caller, {"ended": "detached"})
                    caller.is_leaving = True
                    self._let_go(caller)
        self._wake_up()

    def is_open(self, desk: PromptInput) -> bool:
        with self._lock:
            place = self._places.get(desk.rank)
            return place is not None and place.desk is desk

    def settle(self, desk: PromptInput, limit_s: float) -> None:
        """Wait until the clients of this rank have read what was said to them, at most so long.

        With the last rank the thread is gone as well.
        """
        deadline = time.monotonic() + limit_s
        with self._lock:
            thread = self._thread
            while any(caller.place.desk is desk for caller in self._callers):
                if time.monotonic() > deadline:
                    return
                self._drained.wait(0.1)
            is_last = not self._places and not self._callers
        if thread is not None and is_last:
            thread.join(max(deadline - time.monotonic(), 0.0))

    # ------------------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            while True:
                with self._lock:
                    self._settle_places()
                    if not self._places and not self._callers:
                        self._end_thread()
                        return
                for key, events in self._selector.select(timeout=1.0):
                    if key.fileobj is self._woken:
                        with suppress(BlockingIOError):
                            self._woken.recv(4096)
                    elif isinstance(key.data, RankSocket):
                        self._accept(key.data)
                    elif isinstance(key.data, Caller):
                        if events & selectors.EVENT_WRITE:
                            with self._lock:
                                self._flush(key.data)
                        if events & selectors.EVENT_READ and not key.data.is_gone:
                            self._receive(key.data)
                with self._lock:
                    for caller in list(self._callers):
                        if caller.outbox or caller.is_leaving:
                            self._flush(caller)
        except BaseException:
            with self._lock:
                self._end_thread()
            raise

    def _end_thread(self) -> None:
        self._thread = None
        for one in (self._selector, self._woken, self._wake):
            one.close()

    def _settle_places(self) -> None:
        known = {key.fileobj for key in self._selector.get_map().values()}
        for place in self._places.values():
            if place.listening not in known:
                self._selector.register(place.listening, selectors.EVENT_READ, place)
        for place in self._closing:
            if place.listening in known:
                self._selector.unregister(place.listening)
            place.listening.close()
        self._closing.clear()

    def _accept(self, place: RankSocket) -> None:
        try:
            sock, _ = place.listening.accept()
        except OSError:
            return
        sock.setblocking(False)
        if _user_of(sock) != os.getuid() or len(self._callers) >= MAX_CLIENTS:
            sock.close()
            return
        caller = Caller(sock, place)
        desk = place.desk
        with self._lock:
            self._callers.add(caller)
            self._selector.register(sock, selectors.EVENT_READ, caller)
            self._send(
                caller,
                protocol.hello(
                    rank=desk.rank,
                    pid=self._pid,
                    run=desk.run,
                    is_stopped=desk.is_stopped,
                    why=desk.why,
                    site=desk.site,
                    mode=desk.mode,
                    is_debuggable=desk.is_debuggable,
                ),
            )

    def _receive(self, caller: Caller) -> None:
        try:
            data = caller.socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(caller)
            return
        if caller.is_leaving:
            return
        caller.inbox += data
        try:
            for line in protocol.cut_lines(caller.inbox):
                self._take(caller, protocol.decode(line))
                if caller.is_leaving or caller.is_gone:
                    return
        except MalformedLine as error:
            self._refuse(caller, f"this is not the protocol of the debugger: {error}")

    # ------------------------------------------------------------------------- what clients say

    def _take(self, caller: Caller, words: Words) -> None:
        desk = caller.place.desk
        if "eval" in words:
            self._evaluate(caller, words)
        elif words.get("continue"):
            self._continue(caller)
        elif words.get("detach"):
            self._send(caller, {"ended": "detached"})
            caller.is_leaving = True
            self._let_go(caller)
        elif self._attach(caller, words):
            match words:
                case {"attach": _}:
                    pass  # done
                case {"line": str(text)}:
                    if desk.is_stopped:
                        desk.put(TypedLine(text))
                case {"complete": value}:
                    completion = protocol.read_completion(value)
                    if desk.is_waiting:
                        desk.put_completion(*completion)
                    else:
                        self._send(caller, {"completions": []})
                case {"interrupt": _}:
                    desk.interrupt()
                case {"bytes": data}:
                    taken = protocol.from_base64(data)
                    if desk.take_bytes is not None:
                        desk.take_bytes(taken)
                case {"size": value}:
                    self._resize(desk, value)
                case _:
                    raise MalformedLine(
                        f"unknown words {shorten(', '.join(map(str, words)), 80)!r}"
                    )

    def _attach(self, caller: Caller, words: Words) -> bool:
        place, desk = caller.place, caller.place.desk
        if place.attached is caller:
            return True
        if place.attached is not None:
            who = place.attached.name
            self._refuse(caller, f"rank {desk.rank} is attached already, by {who}")
        elif desk.has_own_terminal:
            self._refuse(caller, f"rank {desk.rank} is debugged at its own terminal")
        elif not desk.is_stopped and not desk.is_debuggable:
            self._refuse(caller, not_debuggable(desk.rank))
        else:
            name = words.get("attach")
            caller.name = shorten(name, 100) if isinstance(name, str) and name else "a client"
            place.attached = caller
            if "size" in words:
                self._resize(desk, words["size"])  # before the debugger looks
            desk.attach(caller.name, lambda said: self._post(caller, said))
            if not desk.is_stopped:
                desk.interrupt()
            return True
        return False

    def _resize(self, desk: PromptInput, value: object) -> None:
        desk.size = protocol.read_size(value)
        if desk.take_size is not None:
            desk.take_size(*desk.size)

    def _continue(self, caller: Caller) -> None:
        desk = caller.place.desk
        if not desk.is_stopped:
            self._refuse(caller, f"rank {desk.rank} runs")
        elif desk.has_own_terminal or desk.mode != "line":
            self._refuse(caller, f"rank {desk.rank} is continued where its debugger is shown")
        else:
            desk.put(TypedLine("continue"))
            self._send(caller, {"running": True})

    def _evaluate(self, caller: Caller, words: Words) -> None:
        place, desk = caller.place, caller.place.desk
        id_, expression = words.get("id"), words["eval"]
        if (
            isinstance(id_, bool)
            or not isinstance(id_, (int, str))
            or not isinstance(expression, str)
        ):
            raise MalformedLine("'eval' needs an 'id' and is a text")
        if not desk.is_stopped and not desk.is_debuggable:
            self._send(caller, {"id": id_, "error": not_debuggable(desk.rank)})
            return

        def work() -> None:
            answer: Words = dict(place.evaluate(expression))
            self._post(caller, {"id": id_, **answer})

        if place.evaluations >= MAX_EVALUATIONS:
            self._send(caller, {"id": id_, "error": "too many expressions are being evaluated"})
            return

        def on_end(evaluation: Evaluation) -> None:
            with self._lock:
                place.evaluations -= 1
                caller.evaluations.discard(evaluation)

        with self._lock:
            place.evaluations += 1
            caller.evaluations.add(Evaluation(work, on_end))

    # ------------------------------------------------------------------------- to clients

    def _post(self, caller: Caller, words: Words) -> None:
        """Send to a client, from any thread; waits a little for one that does not read."""
        with self._lock:
            deadline = time.monotonic() + PATIENCE_S
            while len(caller.outbox) > MAX_UNREAD_NBYTES and not caller.is_gone:
                if threading.current_thread() is self._thread or time.monotonic() > deadline:
                    caller.is_leaving = True
                    caller.outbox.clear()
                    break
                self._drained.wait(0.1)
            self._send(caller, words)
        self._wake_up()

    def _send(self, caller: Caller, words: Words) -> None:
        if caller.is_gone or caller.is_leaving:
            return
        with self._lock:
            caller.outbox += protocol.encode(words)
            if threading.current_thread() is self._thread:
                self._flush(caller)

    def _flush(self, caller: Caller) -> None:
        if caller.is_gone:
            return
        try:
            while caller.outbox:
                sent = caller.socket.send(memoryview(caller.outbox)[: 1 << 18])
                del caller.outbox[:sent]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(caller)
            return
        self._drained.notify_all()
        if caller.is_leaving and not caller.outbox:
            self._drop(caller)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if caller.outbox else 0)
        if self._selector.get_key(caller.socket).events != events:
            self._selector.modify(caller.socket, events, caller)

    def _refuse(self, caller: Caller, why: str) -> None:
        self._send(caller, {"ended": why, "refused": True})
        caller.is_leaving = True

    def _let_go(self, caller: Caller) -> None:
        place = caller.place
        if place.attached is caller:
            place.attached = None
            place.desk.leave()

    def _drop(self, caller: Caller) -> None:
        with self._lock:
            if caller.is_gone:
                return
            caller.is_gone = True
            self._callers.discard(caller)
            with suppress(KeyError, ValueError):
                self._selector.unregister(caller.socket)
            caller.socket.close()
            for evaluation in caller.evaluations:
                evaluation.break_off()
            self._drained.notify_all()
        self._let_go(caller)

    def _wake_up(self) -> None:
        with self._lock, suppress(BlockingIOError, OSError):
            if self._thread is not None:
                self._wake.send(b"\0")

    def forget(self) -> None:
        """Let go of the sockets in a fork: they are the parent's."""
        for place in self._places.values():
            place.listening.close()
        for caller in self._callers:
            caller.socket.close()

    def remove_all(self) -> None:
        """At the end of the process: no socket is left, and clients know why."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            desks = [place.desk for place in self._places.values()]
            desks += [caller.place.desk for caller in self._callers]
        for desk in desks:
            self.end(desk, f"rank {desk.rank} ends")
        for desk in desks:
            self.settle(desk, _LAST_WORDS_S)


def server() -> PromptServer:
    if not _here:
        _here.append(PromptServer())
        if len(_registered) == 0:
            _registered.append(True)
            os.register_at_fork(after_in_child=_forget)
            atexit.register(_remove_all)
    return _here[0]


#: What belongs to the process and not to a rank; a fork has none.
_here: list[PromptServer] = []
_registered: list[bool] = []


def _forget() -> None:
    while _here:
        _here.pop().forget()


def _remove_all() -> None:
    for one in _here:
        one.remove_all()


def _remove(place: RankSocket) -> None:
    with suppress(OSError):
        if place.path.stat().st_ino == place.inode:  # else another process has taken it
            place.path.unlink()


def _user_of(sock: socket.socket) -> int:
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return int(_PEER.unpack(data)[1])
