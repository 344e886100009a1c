"""The short way of a send or recv: announced and compared as on the long way, in fewer steps.

    know_message     what all messages of one look have in common
    messages_of      one native call records a message, posts its header and hands it to torch; another waits
    LaneMessage      until somebody waits for it, and all that goes wrong

Headers that are the same are posted again, and what was found alike once is not taken apart again. As soon
as a group has received from any source, or where its ops are not compared, messages take the long way.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from distdbg.errors import DistError
from distdbg.native import MessageLook, TappedMessages
from distdbg.ops.call import Kind
from distdbg.runtime.backends.checked.backend_error import failed
from distdbg.runtime.backends.checked.message_header import HEADER_NBYTES
from distdbg.torch_bridge.tap.callers import is_blocking_recv
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.lane import FastLane, KnownLook, LaneOp
from distdbg.torch_bridge.tap.queued import device_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from distdbg.native import Message
    from distdbg.runtime.backends.checked.checked_pending import OpWatch
    from distdbg.torch_bridge.tap.in_flight import InFlight

#: As in runtime/backends/checked/messages.py: a header is posted before its message, so it is there soon.
_SOON_NS = 5_000_000_000


class KnownMessage(KnownLook):
    """What all messages of one look have in common."""

    __slots__ = ("call", "checks", "look", "words")

    def __init__(self, lane: FastLane, known: KnownLook, words: dict[str, Any]) -> None:
        super().__init__(known.make, known.form, None, known.device)
        assert lane.checked is not None  # without, nothing is known
        self.checks = lane.checked.messages
        #: A Call without arrays, which nobody changes.
        self.call = call = known.make()
        #: What this side says of them, but for the line.
        self.words = words
        #: What native code needs of them, and what it has seen of them.
        self.look = MessageLook(
            known.form,
            (call.kind, call.peer),
            call.kind is Kind.SEND,
            call.peer,
            call.tag,
            0 if self.checks.ignores_tags else call.tag,
            known.device,
        )

    def make_words(self) -> bytes:
        """What is said of one that is sent from the program's line of now."""
        return self.checks.header_of(self.words)


class LaneMessage(LaneOp):
    """A message that torch has, found again by its Work."""

    #: Native code makes it (TappedMessages.launch), without a frame of Python, and sets all of them.
    __slots__ = ("note", "trouble", "watch")

    known: KnownMessage
    #: Of a recv, what its sender says; None: it was compared.
    note: Message | None
    watch: OpWatch | None
    #: What the thread has found that looks after waits.
    trouble: DistError | None

    def on_unposted(self) -> bool:
        """Its announcement has failed: post it again, which raises why. False: it takes the long way."""
        known, tag = self.known, self.known.look.common_tag
        try:
            if known.call.kind is Kind.SEND:
                known.checks.announce(known.call, known.make_words(), tag)
            else:
                self.note = known.checks.expect(known.call, known.call.peer, tag)
        except DistError as error:
            return self._ended_by(error)
        return True

    def compare_first(self) -> bool:
        """At DETAIL, of a recv: compare before torch may write anything. False: it takes the long way."""
        if not is_blocking_recv():
            return True
        try:
            _compare_first(self.lane, self.known, self)
        except DistError as error:
            return self._ended_by(error)
        return True

    def on_unstarted(self, error: BaseException) -> None:
        """Torch has refused it with this error, which is raised next, or raise what is the reason."""
        lane, engine = self.lane, self.lane.checked
        assert engine is not None  # without, there is no short way
        if isinstance(error, DistError) or not isinstance(error, Exception):
            lane.recorded.end(self.op, error)
            return
        reported = self.explained(error) if engine.can_explain_start(error) else None
        lane.recorded.end(self.op, reported or failed(lane.engine, self.known.call, error))
        if reported is not None and not lane.tapped.groups.is_off():
            raise reported from error

    def _ended_by(self, error: DistError) -> bool:
        self.lane.recorded.end(self.op, error)
        if self.lane.tapped.groups.is_off():
            return False
        raise error

    def wait(self, work: Any, real: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Wait as its caller, in torch, then compare; what torch raises is raised as it is."""
        lane = self.lane
        try:
            if args or kwargs:  # a limit of the caller's own
                self._wait_limited(work, real, args, kwargs)
            elif lane.messages.wait(self, self.known.look, work, real):
                return True
        except DistError:
            raise
        except RuntimeError as error:
            if args or kwargs:
                raise
            reported = self.trouble or self.explained(error)
            lane.recorded.end(self.op, reported or failed(lane.engine, self.known.call, error))
            if reported is None or lane.tapped.groups.is_off():
                raise
            raise reported from error
        source = -1 if self.known.call.kind is Kind.SEND else self.known.call.peer
        self.op.leave_to_device(source)
        try:
            if self.trouble is not None:
                raise self.trouble
            if self.note is not None:
                self._take(self.note)
        except DistError as error:
            lane.recorded.end(self.op, error)
            if lane.tapped.groups.is_off():
                return True
            raise
        self.op.ended(0, source)
        if not lane.ops.are_all_well():
            lane.raise_trouble()
        return True

    def _wait_limited(self, work: Any, real: Callable[..., Any], args: Any, kwargs: Any) -> None:
        lane, recorder = self.lane, self.lane.recorder
        place = recorder.begin_wait(self.op.number, is_limited=True)
        lane.message_waits[id(self)] = self
        try:
            real(work, *args, **kwargs)
        finally:
            del lane.message_waits[id(self)]
            recorder.end_wait(place)

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

    def _take(self, note: Message) -> None:
        self.note = None
        lane, known = self.lane, self.known
        engine = lane.checked
        assert engine is not None
        if not note.done and not lane.control.has_come(note):
            if lane.engine.queued is not None:  # it is the device that waits for it
                lane.owe(known, note)
                return
            try:
                lane.control.await_header(known.call, note, engine.clock.now_ns() + _SOON_NS, False)
            except DistError:  # the message itself has come, so nothing is wrong but our count
                known.checks.lose(known.look.common_tag)
                return
        if engine.level > 0:
            _compare(known, note)

    def widen(self, work: Any) -> InFlight:
        """Never: whoever waits for a message does it here."""
        raise AssertionError("a message has no other way")


def compare_owed(lane: FastLane) -> None:
    """Compare messages that a device waits for with what their senders have said meanwhile."""
    engine = lane.checked
    assert engine is not None  # without, nothing is owed
    for _ in range(len(lane.owed)):
        known, note = lane.owed.popleft()
        if not note.done and not lane.control.has_come(note):
            lane.owed.append((known, note))
        elif engine.level > 0:
            try:
                _compare(known, note)
            except DistError as error:
                engine.on_trouble(error)


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
    look = KnownLook(make, lane.recorded.form_of(call), None, device_of(tensors))
    known = KnownMessage(lane, look, words)
    lane.keep(key, known)
    return known


def messages_of(lane: FastLane, key: Any) -> TappedMessages | None:
    """What records, announces and waits for messages; None: they are not compared. `key`: of our kernels."""
    if lane.checked is None:
        return None
    checks = lane.checked.messages
    return TappedMessages(
        lane.ops,
        lane.recorder,
        lane.control.native,
        lane.checked,
        checks,
        checks.order,
        lane.recorded.message_counts,
        lane.message_waits,
        LaneMessage,
        HEADER_NBYTES,
        key,
    )


def _compare_first(lane: FastLane, known: KnownMessage, message: LaneMessage) -> None:
    engine, note = lane.checked, message.note
    assert engine is not None
    assert note is not None
    deadline_ns = engine.clock.now_ns() + lane.control.limit_ns(known.call)
    place = lane.recorder.begin_wait(message.op.number)  # or a deadlock would look like work
    try:
        lane.control.await_header(known.call, note, deadline_ns, True)
    except DistError as error:
        reported = lane.control.reported_mismatch() or error
        raise engine.on_trouble(reported) from error.__cause__
    finally:
        lane.recorder.end_wait(place)
    message.note = None
    _compare(known, note)


def _compare(known: KnownMessage, note: Message) -> None:
    said = note.note
    if known.look.is_alike(said):
        return
    checks = known.checks
    checks.compare_words(known.call, known.call.peer, json.loads(said), checks.at(known.words))
    known.look.note_alike(said)
