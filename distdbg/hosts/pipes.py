"""Pipes through the tree: from a client of one host's agent to the agent of another. Pure.

    origin                  nodes between                   target
    open   ---------------- each remembers the way -------> opened
    accepted  <-------------------------------------------- accept
    send, take_news   <---- data, credits ----------------> send, take_news
    end    <-------------- either end, or a broken link --> ended

A frame is 'p', what it is (one byte), the pipe's origin and number (4 bytes each, little endian) and

    O   JSON: {"host": name} or {"rank": number}, whom it leads to; "from": the host it comes from
    A   nothing
    D   up to MAX_DATA_NBYTES bytes
    C   how many bytes the other end has taken (4 bytes)
    E   why it ends, in UTF-8; nothing: the end was closed

An end sends no more than WINDOW_NBYTES that the other end has not taken. Each node between counts along
and ends a pipe that does not keep to it, so no node ever holds more than a window of each pipe in each
direction, however slow its ends are.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from distdbg.hosts.messages import BadMessage

WINDOW_NBYTES: Final = 64 << 10
MAX_DATA_NBYTES: Final = 16 << 10
#: Pipes that begin, end or pass at one node.
MAX_PIPES: Final = 64
MAX_WHY: Final = 400
#: The link that is no link: this host's end.
HERE: Final = -1
_MARK: Final = b"p"
_HEAD_NBYTES: Final = 10
_MAX_NUMBER: Final = 1 << 32


class PipeKey(NamedTuple):
    """Which pipe: the node where it begins, and that node's number for it."""

    origin: int
    number: int


class NoWay(Exception):
    """Why a pipe leads nowhere."""


@dataclass(frozen=True, slots=True)
class PipeTarget:
    """Where a pipe leads: to the agent of this host, or of the host of this rank."""

    host: str = ""
    rank: int | None = None

    def __str__(self) -> str:
        return f"host {self.host}" if self.rank is None else f"the host of rank {self.rank}"

    def to_json(self) -> dict[str, Any]:
        return {"host": self.host} if self.rank is None else {"rank": self.rank}

    @classmethod
    def from_json(cls, words: dict[str, Any]) -> PipeTarget:
        """ValueError for what is none."""
        match words:
            case {"rank": int() as rank} if 0 <= rank < 1 << 31 and type(rank) is int:
                return cls(rank=rank)
            case {"host": str() as host} if 0 < len(host) <= 255:
                return cls(host=host)
        raise ValueError("'host' is the name of a host, or 'rank' a number")


@dataclass(frozen=True, slots=True)
class PipeOpened:
    """Somebody has opened a pipe to this host; to be answered by `accept` or `end`."""

    key: PipeKey
    by: str
    """The host it comes from."""


@dataclass(frozen=True, slots=True)
class PipeAccepted:
    """The other end is there."""

    key: PipeKey


@dataclass(frozen=True, slots=True)
class PipeData:
    """Bytes from the other end; `take` them when they have gone on."""

    key: PipeKey
    data: bytes


@dataclass(frozen=True, slots=True)
class PipeEnded:
    """The pipe is no more, for what nobody here has done."""

    key: PipeKey
    why: str
    """'': the other end was closed."""


News = PipeOpened | PipeAccepted | PipeData | PipeEnded


@dataclass(slots=True)
class _Way:
    """One pipe at one node."""

    back: int
    forward: int
    is_accepted: bool = False
    on_way_forward: int = 0
    """Bytes that have passed and that the end in front has not taken."""
    on_way_back: int = 0


class Pipes:
    def __init__(self, node: int, host: str, find: Callable[[PipeTarget], int]) -> None:
        """find: the link that leads there, or HERE; NoWay."""
        self._node = node
        self._host = host
        self._find = find
        self._ways: dict[PipeKey, _Way] = {}
        self._number = 0
        self._news: list[News] = []
        self._out: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._ways)

    def __contains__(self, key: PipeKey) -> bool:
        return key in self._ways

    # This host's ends ---------------------------------------------------------------------------

    def open(self, target: PipeTarget) -> PipeKey | None:
        """Begin a pipe; `PipeAccepted` or `PipeEnded` follows. None: it would lead here. NoWay."""
        link = self._find(target)
        if link == HERE:
            return None
        if len(self._ways) >= MAX_PIPES:
            raise NoWay(f"this agent has {MAX_PIPES} pipes already")
        self._number = (self._number + 1) % _MAX_NUMBER
        key = PipeKey(self._node, self._number)
        self._ways[key] = _Way(HERE, link)
        words = {**target.to_json(), "from": self._host}
        self._send(link, b"O", key, json.dumps(words).encode())
        return key

    def accept(self, key: PipeKey) -> None:
        """This host's end is there; nothing when it has ended by now."""
        way = self._ways.get(key)
        if way is not None and way.forward == HERE:
            way.is_accepted = True
            self._send(way.back, b"A", key)

    def room(self, key: PipeKey) -> int:
        """How many bytes may be sent now."""
        way = self._ways.get(key)
        if way is None or not way.is_accepted:
            return 0
        return WINDOW_NBYTES - (way.on_way_forward if way.back == HERE else way.on_way_back)

    def send(self, key: PipeKey, data: bytes) -> None:
        """Send what there is room for; no more than that may be given."""
        way = self._ways.get(key)
        for at in range(0, len(data) if way is not None else 0, MAX_DATA_NBYTES):
            assert way is not None
            piece = data[at : at + MAX_DATA_NBYTES]
            if way.back == HERE:
                way.on_way_forward += len(piece)
                self._send(way.forward, b"D", key, piece)
            else:
                way.on_way_back += len(piece)
                self._send(way.back, b"D", key, piece)

    def take(self, key: PipeKey, nbytes: int) -> None:
        """Note that so many of the bytes that have arrived have gone on."""
        way = self._ways.get(key)
        if way is None or nbytes == 0:
            return
        if way.back == HERE:
            way.on_way_back -= nbytes
            self._send(way.forward, b"C", key, nbytes.to_bytes(4, "little"))
        else:
            way.on_way_forward -= nbytes
            self._send(way.back, b"C", key, nbytes.to_bytes(4, "little"))

    def end(self, key: PipeKey, why: str = "") -> None:
        """End it from here; what was sent before still arrives."""
        way = self._ways.pop(key, None)
        if way is not None:
            self._send(way.forward if way.back == HERE else way.back, b"E", key, _words(why))

    def take_news(self) -> list[News]:
        """What has happened to this host's ends."""
        news, self._news = self._news, []
        return news

    # Links --------------------------------------------------------------------------------------

    @staticmethod
    def is_frame(message: bytes) -> bool:
        return message[:1] == _MARK

    def take_out(self) -> list[tuple[int, bytes]]:
        """The frames that are to go out, in this order."""
        out, self._out = self._out, []
        return out

    def drop_link(self, link: int) -> None:
        """A link is gone, and so are the pipes over it."""
        self._out = [(to, frame) for to, frame in self._out if to != link]
        for key, way in list(self._ways.items()):
            if link in (way.back, way.forward):
                other = way.back if link == way.forward else way.forward
                self._break(key, (other,), f"a link of host {self._host} is broken")

    def receive(self, link: int, frame: bytes) -> None:
        """BadMessage when the link is to be cut."""
        if len(frame) < _HEAD_NBYTES:
            raise BadMessage("a frame of a pipe is too short")
        key = PipeKey(
            int.from_bytes(frame[2:6], "little"), int.from_bytes(frame[6:_HEAD_NBYTES], "little")
        )
        what, said = frame[1:2], frame[_HEAD_NBYTES:]
        if len(said) > MAX_DATA_NBYTES:
            raise BadMessage("a frame of a pipe is too long")
        if what == b"O":
            self._on_open(link, key, said)
            return
        way = self._ways.get(key)
        if way is None or link not in (way.back, way.forward):
            return  # it has ended here, and the other end does not know yet
        is_forward = link == way.back
        match what:
            case b"A":
                self._on_accept(key, way, is_forward)
            case b"D":
                self._on_data(key, way, said, is_forward)
            case b"C":
                self._on_credit(key, way, said, is_forward)
            case b"E":
                del self._ways[key]
                to = way.forward if is_forward else way.back
                if to == HERE:
                    self._news.append(PipeEnded(key, said.decode("utf-8", "replace")[:MAX_WHY]))
                else:
                    self._send(to, b"E", key, said)
            case _:
                raise BadMessage("a frame of a pipe is of an unknown kind")

    def _on_open(self, link: int, key: PipeKey, said: bytes) -> None:
        try:
            words = json.loads(said)
            target = PipeTarget.from_json(words)
            by = words.get("from")
            if not isinstance(by, str) or len(by) > 255:
                raise ValueError("a pipe comes from nowhere")
        except (ValueError, RecursionError, AttributeError) as error:
            raise BadMessage(str(error)) from error
        try:
            if key in self._ways:  # sent up by who was sent it down: the tree is changing
                raise NoWay(f"the way to {target} is being looked for; try again")
            if len(self._ways) >= MAX_PIPES:
                raise NoWay(f"the agent of host {self._host} has {MAX_PIPES} pipes already")
            to = self._find(target)
            if to == link:
                raise NoWay(f"the way to {target} is being looked for; try again")
        except NoWay as error:
            self._send(link, b"E", key, _words(str(error)))
            return
        self._ways[key] = _Way(link, to)
        if to == HERE:
            self._news.append(PipeOpened(key, by))
        else:
            self._send(to, b"O", key, said)

    def _on_accept(self, key: PipeKey, way: _Way, is_forward: bool) -> None:
        if is_forward or way.is_accepted:
            self._break(key, (way.back, way.forward), "its other end does not speak as one")
            return
        way.is_accepted = True
        if way.back == HERE:
            self._news.append(PipeAccepted(key))
        else:
            self._send(way.back, b"A", key)

    def _on_data(self, key: PipeKey, way: _Way, said: bytes, is_forward: bool) -> None:
        if is_forward:
            way.on_way_forward += len(said)
            nbytes, to = way.on_way_forward, way.forward
        else:
            way.on_way_back += len(said)
            nbytes, to = way.on_way_back, way.back
        if nbytes > WINDOW_NBYTES or not said or not way.is_accepted:
            self._break(key, (way.back, way.forward), "its other end sends more than it may")
        elif to == HERE:
            self._news.append(PipeData(key, said))
        else:
            self._send(to, b"D", key, said)

    def _on_credit(self, key: PipeKey, way: _Way, said: bytes, is_forward: bool) -> None:
        nbytes = int.from_bytes(said[:4], "little")
        if is_forward:
            way.on_way_back -= nbytes
            left, to = way.on_way_back, way.forward
        else:
            way.on_way_forward -= nbytes
            left, to = way.on_way_forward, way.back
        if left < 0 or nbytes == 0:
            self._break(key, (way.back, way.forward), "its other end takes what was not sent")
        elif to != HERE:
            self._send(to, b"C", key, nbytes.to_bytes(4, "little"))

    def _break(self, key: PipeKey, to: tuple[int, ...], why: str) -> None:
        del self._ways[key]
        for link in to:
            if link == HERE:
                self._news.append(PipeEnded(key, why))
            else:
                self._send(link, b"E", key, _words(why))

    def _send(self, link: int, what: bytes, key: PipeKey, said: bytes = b"") -> None:
        head = key.origin.to_bytes(4, "little") + key.number.to_bytes(4, "little")
        self._out.append((link, _MARK + what + head + said))


def _words(why: str) -> bytes:
    return why[:MAX_WHY].encode("utf-8", "replace")
