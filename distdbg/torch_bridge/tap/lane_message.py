"""The short way of a send or recv: announced and compared as on the long way, in fewer steps.

    know_message     what all messages of one look have in common
    launch_message   one native call records it, one posts its header; then torch gets it
    LaneMessage      until somebody waits for it

Headers that are the same are posted again, and what was found alike once is not taken apart again. As soon
as a group has received from any source, or where its ops are not compared, messages take the long way.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistError
from distdbg.ops.call import Kind
from distdbg.record.format import Flag
from distdbg.runtime.backends.checked.checked_engine import DETAIL, failed
from distdbg.runtime.backends.checked.messages import MessageHeader
from distdbg.torch_bridge.tap.callers import is_blocking_recv
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.lane import FastLane, KnownLook, LaneOp

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.native import TappedOp
    from distdbg.runtime.backends.checked.checked_pending import OpWatch
    from distdbg.torch_bridge.tap.in_flight import InFlight

_FLAGS = int(Flag.ASYNC | Flag.MESSAGE)
#: As in runtime/backends/checked/messages.py: a header is posted before its message, so it is there soon.
_SOON_NS = 5_000_000_000
#: Lines, and words of the other side, that are kept for one look.
_MOST_SEEN = 64


class KnownMessage(KnownLook):
    """What all messages of one look have in common."""

    __slots__ = ("alike", "call", "headers", "words")

    def __init__(self, known: KnownLook, words: dict[str, Any]) -> None:
        super().__init__(known.make, known.form, None)
        #: A Call without arrays, which nobody changes.
        self.call = known.make()
        #: What this side says of them, but for the line.
        self.words = words
        #: What was said of them, by the lines that called.
        self.headers: dict[int, MessageHeader] = {}
        #: What the other side has said that was alike.
        self.alike: set[bytes] = set()


class LaneMessage(LaneOp):
    """A message that torch has, found again by its Work."""

    __slots__ = ("header", "trouble", "watch")

    known: KnownMessage

    def __init__(self, lane: FastLane, known: KnownLook, op: TappedOp, seq: int) -> None:
        super().__init__(lane, known, op, seq)
        #: Of a recv, what its sender says; None: it was compared.
        self.header: MessageHeader | None = None
        self.watch: OpWatch | None = None
        #: What the thread has found that looks after waits.
        self.trouble: DistError | None = None

    def wait(self, work: Any, real: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Wait as its caller, in torch, then compare; what torch raises is raised as it is."""
        lane = self.lane
        recorder = lane.recorder
        place = recorder.begin_wait(self.op.number)
        lane.message_waits[id(self)] = self
        try:
            real(work, *args, **kwargs)
        except RuntimeError as error:
            if args or kwargs:  # a limit of the caller's own
                raise
            told = self.trouble or self.explained(error)
            lane.recorded.end(self.op, told or failed(lane.engine, self.known.call, error))
            if told is None or lane.tapped.groups.is_off():
                raise
            raise told from error
        finally:
            del lane.message_waits[id(self)]
            recorder.end_wait(place)
        try:
            if self.trouble is not None:
                raise self.trouble
            if self.header is not None:
                self._take(self.header)
        except DistError as error:
            lane.recorded.end(self.op, error)
            if lane.tapped.groups.is_off():
                return True
            raise
        self.op.ended(0, -1 if self.known.call.kind is Kind.SEND else self.known.call.peer)
        if not lane.ops.are_all_well():
            lane.raise_trouble()
        return True

    def look_after(self, now_ns: int) -> None:
        """End the wait for it when it cannot end well: torch gives it up when the group is broken."""
        engine = self.lane.checked
        assert engine is not None  # without, there is no short way
        if self.watch is None:
            age_ns = now_ns - self.op.issued_ns
            self.watch = engine.watcher(self.known.call, 0, None, engine.clock.now_ns() - age_ns)
        try:
            self.watch()
        except DistError as error:
            self.trouble = error

    def explained(self, error: Exception) -> DistError | None:
        """Why torch has failed, where we know more."""
        self.look_after(time.monotonic_ns())
        engine, watch = self.lane.checked, self.watch
        assert engine is not None
        assert watch is not None
        if self.trouble is not None:
            return self.trouble
        try:
            engine.explain(error, watch)
        except DistError as better:
            return better
        return None

    def _take(self, header: MessageHeader) -> None:
        self.header = None
        lane, known = self.lane, self.known
        engine = lane.checked
        message = header.message
        assert engine is not None
        assert message is not None  # it was posted
        if not message.done and not lane.control.has_come(message):
            try:
                lane.control.await_header(
                    known.call, message, engine.clock.now_ns() + _SOON_NS, False
                )
            except DistError:  # the message itself has come, so nothing is wrong but our count
                engine.messages.lose(known.call.tag)
                return
        if engine.level > 0:
            _compare(engine.messages, known, header)

    def widen(self, work: Any) -> InFlight:
        """Never: whoever waits for a message does it here."""
        raise AssertionError("a message has no other way")


def know_message(
    lane: FastLane, key: object, kind: Kind, tensor: Any, peer: int, tag: int
) -> KnownLook | None:
    """Work out what messages of this look have in common; None: they have no short way."""
    if lane.checked is None or peer < 0 or str(tensor.layout) != "torch.strided":
        return None

    def make() -> TapCall:
        return TapCall(kind, (), (), peer=peer, tag=tag)

    tensors = (tensor,)
    call = make()
    if kind is Kind.SEND:
        call.inputs = tensors
    else:
        call.outputs = tensors
    words = lane.checked.messages.words(call)
    known = KnownMessage(KnownLook(make, lane.recorded.form_of(call), None), words)
    lane.keep(key, known)
    return known


def launch_message(
    lane: FastLane,
    known: KnownLook,
    kind: Kind,
    peer: int,
    tag: int,
    start: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> tuple[LaneMessage | None, Any]:
    """Record a message, announce it and start it in torch: what `start(*arguments)` returns.

    No op: nothing was started, and it takes the long way.
    """
    engine = lane.checked
    assert isinstance(known, KnownMessage)
    assert engine is not None  # without, nothing is known
    messages = engine.messages
    if not messages.are_certain or tag in messages.lost_tags:
        return None, None
    counts = lane.recorded.message_counts
    place = (kind, peer)
    with messages.order:
        op = lane.ops.begin_message(known.form, counts[place] + 1, tag, peer, _FLAGS)
        if op is None:
            return None, None
        counts[place] += 1
        message = LaneMessage(lane, known, op, counts[place])
        common = 0 if messages.ignores_tags else tag
        try:
            if kind is Kind.SEND:
                header = known.headers.get(op.site)
                if header is None:
                    header = _make_header(lane, known, op.site)
                messages.announce(known.call, header.again(), common)
            else:
                message.header = messages.expect_next(known.call, peer, common)
        except DistError as error:
            lane.recorded.end(op, error)
            if lane.tapped.groups.is_off():
                return None, None
            raise
    try:
        if message.header is not None and engine.level == DETAIL and is_blocking_recv():
            _compare_first(lane, known, message)
        return message, start(*arguments)
    except DistError as error:
        lane.recorded.end(op, error)
        if lane.tapped.groups.is_off():
            return None, None
        raise
    except Exception as error:
        told = message.explained(error) if engine.can_explain_start(error) else None
        lane.recorded.end(op, told or failed(lane.engine, known.call, error))
        if told is None or lane.tapped.groups.is_off():
            raise
        raise told from error
    except BaseException as error:
        lane.recorded.end(op, error)
        raise


def _make_header(lane: FastLane, known: KnownMessage, site: int) -> MessageHeader:
    assert lane.checked is not None
    if len(known.headers) >= _MOST_SEEN:
        known.headers.clear()
    header = lane.checked.messages.header_of(known.words)
    known.headers[site] = header
    return header


def _compare_first(lane: FastLane, known: KnownMessage, message: LaneMessage) -> None:
    """Wait for the header and compare, before torch may write anything."""
    engine, header = lane.checked, message.header
    assert engine is not None
    assert header is not None
    deadline_ns = engine.clock.now_ns() + lane.control.limit_ns(known.call)
    place = lane.recorder.begin_wait(message.op.number)  # or a deadlock would look like work
    try:
        lane.control.await_header(known.call, header.message, deadline_ns, True)
    except DistError as error:
        told = lane.control.told_mismatch() or error
        raise engine.on_trouble(told) from error.__cause__
    finally:
        lane.recorder.end_wait(place)
    message.header = None
    _compare(engine.messages, known, header)


def _compare(messages: Any, known: KnownMessage, header: MessageHeader) -> None:
    said = header.memory.tobytes()
    if said in known.alike:
        return
    messages.compare_words(known.call, known.call.peer, header.facts(), messages.at(known.words))
    if len(known.alike) >= _MOST_SEEN:
        known.alike.clear()
    known.alike.add(said)
