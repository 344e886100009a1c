"""Point-to-point ops of other backends: a header beside each message.

The sender posts a header to the same peer with the same tag, and waits for nothing. A receiver that
waits for one rank takes the header first and compares; then the backend receives. All other receives
start at once, and are compared when they have ended: from any source, because only then is it known whose
message it was (so what such a receive matches is the backend's choice, as without us), and
asynchronous ones, so that the backend knows of them in the order they were posted. While the backend has
such a one from a rank that has left, its header must be here: who has announced nothing sends nothing.

Where a receive from any source is open beside others of its tag, nobody can tell which header belongs to
which message: these are not compared, but one header is taken for each message all the same.

When a difference is found the sender has gone on, and its message stays in the backend: so the receiver
breaks the group, and the sender raises at its next op, or in the op that it waits in.
"""

from __future__ import annotations

import json
import threading
import time
import weakref
from contextlib import suppress
from typing import Any, Protocol

from distdbg.errors import DistError, MismatchError, OpTimeout
from distdbg.native import Message, NativeError
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Pending
from distdbg.ops.sites import UNKNOWN, shorten
from distdbg.runtime.backends.checked.checked_pending import LookAhead
from distdbg.runtime.backends.checked.control import ControlGroup
from distdbg.runtime.backends.checked.message_header import (
    HEADER_NBYTES,
    amount,
    look,
    make_header,
    words_of,
)
from distdbg.runtime.backends.checked.message_way import (
    MessageWay,
    differing_orders,
    differing_routes,
)
from distdbg.runtime.backends.checked.traits import Traits
from distdbg.runtime.backends.reported_difference import DIFFERS
from distdbg.runtime.backends.self_messages import is_alone, refuse
from distdbg.runtime.handles.work import NO_DEADLINE

#: A header is posted before its message, so it is there soon after it.
_SOON_NS = 5_000_000_000
#: How long a look waits for the header of a rank that has left.
_ON_ITS_WAY_NS = 100_000_000
#: How long close() waits for receivers to take the headers of what was sent.
_LINGER_S = 5.0
#: Looks that are kept.
_MAX_KNOWN = 512
_TWO = "NCCL has one communicator for the batches of a group, and one for the other messages of two ranks"
_BOTH_OR_NONE = (
    "call both sides in batch_isend_irecv, or neither; or make the group with device_id="
)
_ONE = "the two share a communicator, which carries out messages and collectives in one order"
_IN_ORDER = "call both in one order on both ranks, or use a group of their own for the messages"


class MessageChecks(Protocol):
    """What messages need of the check of their group (checked_engine.py)."""

    level: int

    def carry_out(self, call: Call, seq: int) -> int:
        """Let the backend do the op, and wait for it, but not alone."""
        ...

    def pending(self, call: Call, look_ahead: LookAhead | None = None) -> Pending:
        """Start a point to point op; `look_ahead` is asked while the backend has it."""
        ...

    def way_of(self, call: Call) -> MessageWay:
        """By which communicator a message of now goes."""
        ...

    def on_trouble(self, error: DistError) -> DistError:
        """Give the group up for this error."""
        ...


class Messages:
    """The point to point ops of one group."""

    def __init__(self, engine: MessageChecks, control: ControlGroup, traits: Traits) -> None:
        self._engine = engine
        self._control = control
        self._ignores_tags = traits.ignores_tags
        #: Whether a receive is compared while the backend has it: an op of a device may never end.
        self._compares_in_flight = traits.ends_later
        #: Held by those who count messages and post their headers in one order, outside of here.
        self.order = threading.Lock()
        #: Protects the rest.
        self._lock = threading.Lock()
        #: What was sent before, and what was compared before and is alike: programs repeat themselves.
        self._known: dict[object, bytes] = {}
        self._alike: set[object] = set()
        #: Receives that have not been seen to end, by tag.
        self._open: dict[int, weakref.WeakSet[ReceivePending]] = {}
        #: No receive was ever from any source, so each header is for the next message of its tag.
        self.are_certain = True
        #: Tags where a receive from any source was dropped, so headers cannot be distinguished.
        self.lost_tags: set[int] = set()

    def run(self, call: Call) -> int:
        """Carry out a blocking send or recv."""
        if call.peer == self._control.rank:
            self._refuse_alone(call)
        if call.kind is Kind.SEND:
            self._announce(call)
            return self._engine.carry_out(call, 0)
        tag = self._tag(call)
        with self._lock:
            is_alone = call.peer >= 0 and not self._open.get(tag) and tag not in self.lost_tags
        if not is_alone or self._engine.level == 0:
            pending = self.submit(call)
            pending.wait(NO_DEADLINE)
            return pending.source_rank()
        deadline_ns = self._control.clock.now_ns() + self._control.limit_ns(call)
        way = self._engine.way_of(call)
        try:
            header = self.expect(call, call.peer, tag)
            self._control.await_header(call, header, deadline_ns, True)
        except DistError as error:
            reported = self._control.reported_mismatch() or error
            raise self._engine.on_trouble(reported) from error.__cause__
        self.compare(call, call.peer, header.note, way, self._control.call_site())
        return self._engine.carry_out(call, 0)

    def submit(self, call: Call, compares_first: bool = False) -> Pending:
        """Start a send or recv; `compares_first`: a recv not before its message was announced."""
        if call.kind is Kind.SEND:
            self._announce(call)
            return self._engine.pending(call)
        tag = self._tag(call)
        with self._lock:
            self.are_certain = self.are_certain and call.peer >= 0
            pending = ReceivePending(
                self, call, tag, self._engine.way_of(call), self._control.call_site()
            )
            others = self._open.setdefault(tag, weakref.WeakSet())
            if others and (call.peer < 0 or any(other.call.peer < 0 for other in others)):
                pending.is_certain = False
                for other in others:
                    other.is_certain = False
            others.add(pending)
            if call.peer >= 0 and tag not in self.lost_tags:
                pending.expect(call.peer)
        if compares_first and pending.is_certain and pending.header is not None:
            self._compare_first(pending, pending.header)
        pending.inner = self._engine.pending(call, pending.look_ahead)
        return pending

    def _compare_first(self, pending: ReceivePending, header: Message) -> None:
        """Wait for the header and compare, before the backend may write anything."""
        call = pending.call
        deadline_ns = self._control.clock.now_ns() + self._control.limit_ns(call)
        try:
            self._control.await_header(call, header, deadline_ns, True)
        except DistError as error:
            reported = self._control.reported_mismatch() or error
            raise self._engine.on_trouble(reported) from error.__cause__
        with self._lock:
            self._open[pending.tag].discard(pending)
        pending.is_taken = True
        self.compare(call, call.peer, header.note, pending.way, pending.site)

    def drain(self) -> None:
        """Wait a little for receivers that have not taken the headers of what they are sent."""
        deadline = time.monotonic() + _LINGER_S
        while not self._control.is_broken and not self._control.are_sends_received():
            if time.monotonic() > deadline:
                break
            time.sleep(0.001)  # nothing but another look tells

    # -------------------------------------------------------------------------------- headers

    def _tag(self, call: Call) -> int:
        return 0 if self._ignores_tags else call.tag

    @property
    def ignores_tags(self) -> bool:
        """Whether the backend matches messages without their tags."""
        return self._ignores_tags

    def _refuse_alone(self, call: Call) -> None:
        """Raise where a blocking message to this rank itself can never find its other side."""
        is_send, tag = call.kind is Kind.SEND, self._tag(call)
        with self._lock:
            others = list(self._open.get(tag, ())) if is_send else []
        if any(other.call.peer < 0 for other in others):
            return  # a receive from any source, whose header is not asked for yet
        if not self._control.native.meets_itself(is_send, tag) and is_alone():
            names = self._control.names
            raise refuse(is_send, names[self._control.rank], call.tag, self._control.name)

    def _announce(self, call: Call) -> None:
        self.announce(call, self._header(call, self._control.call_site()), self._tag(call))

    def announce(self, call: Call, header: bytes, tag: int) -> None:
        """Post what is said of a message, before the message itself."""
        self._control.post(call, header, HEADER_NBYTES, call.peer, tag)

    def header_of(self, words: dict[str, Any]) -> bytes:
        """What is said of a message that is sent from the program's line of now."""
        return make_header(self.at(words))

    def at(self, words: dict[str, Any]) -> dict[str, Any]:
        """The same at the program's line of now."""
        return words | {"call_site": self._control.call_site()}

    def _header(self, call: Call, site: str) -> bytes:
        way = self._engine.way_of(call)
        key: object = (site, way, *look(call, call.inputs[0]))
        try:
            known = self._known.get(key)
        except TypeError:  # a dtype or shape of somebody's that cannot be hashed
            known, key = None, None
        if known is not None:
            return known
        header = make_header(words_of(call, site) | way.words)
        if key is not None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = header
        return header

    def take(self, pending: ReceivePending, source: int) -> None:
        """After a receive has ended: take its header, and compare where it is certain."""
        with self._lock:
            if pending.tag in self.lost_tags:
                return
            if pending.header is None:
                pending.expect(source)
            self._open[pending.tag].discard(pending)
        header = pending.header
        if header is None:
            return
        try:
            self._control.await_header(
                pending.call, header, self._control.clock.now_ns() + _SOON_NS, False
            )
        except DistError:
            # The message itself has come, so nothing is wrong but our count.
            self.lose(pending.tag)
            return
        if pending.is_certain and self._engine.level > 0:
            self.compare(
                pending.call, source, header.note, pending.way, pending.site, has_come=True
            )

    def look_ahead(self, pending: ReceivePending, *, is_late: bool) -> None:
        """Look after a receive that the backend has and may never end."""
        header = pending.header
        if header is None or not pending.is_certain or pending.is_taken:
            return
        self._look_for_sender(pending.call, header)
        is_of_use = self._compares_in_flight and self._engine.level > 0
        if not is_of_use or (pending.is_compared and not is_late):
            return
        try:
            if not self._control.has_come(header):
                return
        except NativeError:
            return  # of the group, which tells it better
        pending.is_compared = True
        self.compare(
            pending.call, pending.call.peer, header.note, pending.way, pending.site, is_late=is_late
        )

    def _look_for_sender(self, call: Call, header: Message) -> None:
        """Raise when the sender has left and had not announced it: few backends hear of that."""
        if not self._control.has_left(call.peer):
            return
        with suppress(OpTimeout):  # between hosts it may be on its way
            deadline_ns = self._control.clock.now_ns() + _ON_ITS_WAY_NS
            self._control.await_header(call, header, deadline_ns, False)

    def expect(self, call: Call, source: int, tag: int) -> Message:
        """Post the receive of a header."""
        return self._control.post(call, None, HEADER_NBYTES, source, tag)

    def lose(self, tag: int) -> None:
        """From now on headers of this tag cannot be distinguished."""
        self.lost_tags.add(tag)

    def compare(
        self,
        call: Call,
        source: int,
        header: bytes,
        way: MessageWay,
        site: str,
        *,
        is_late: bool = False,
        has_come: bool = False,
    ) -> None:
        """Raise when what was sent is not what is expected; `is_late`: and did not come within the limit."""
        key: object = (header, way, is_late, has_come, *look(call, call.outputs[0]))
        try:
            if key in self._alike:
                return
        except TypeError:  # as above
            key = None
        theirs, ours = json.loads(header), words_of(call, site) | way.words
        self.compare_words(call, source, theirs, ours)
        # NCCL need not, and yet may end such a message: then nothing is wrong with it.
        if not has_come and (is_late or self._engine.level > 1):
            self._compare_orders(call, source, theirs, ours)
        if key is not None:
            if len(self._alike) >= _MAX_KNOWN:
                self._alike.clear()
            self._alike.add(key)

    def words(self, call: Call) -> dict[str, Any]:
        """What this side says of a message, but for the line."""
        return words_of(call, UNKNOWN)

    def compare_words(
        self, call: Call, source: int, theirs: dict[str, Any], ours: dict[str, Any]
    ) -> None:
        """Raise when what was sent is not what is expected."""
        aspects = ("dtype", "count", "device", *(("tag",) if self._ignores_tags else ()))
        if all(theirs[aspect] == ours[aspect] for aspect in aspects):
            routes = differing_routes(theirs, ours)
            if routes is not None:
                raise self._unlike(call, source, theirs, ours, routes, _TWO, _BOTH_OR_NONE)
            return
        names = self._control.names
        sender, receiver = names[source], names[self._control.rank]
        has_tag = self._ignores_tags and theirs["tag"] != ours["tag"]
        has_device = theirs["device"] != ours["device"]
        sites = shorten([theirs["call_site"], ours["call_site"]])
        error = MismatchError(
            f"recv on group '{self._control.name}' {DIFFERS}"
            f"rank {sender} sent {amount(theirs, has_tag, has_device)}, "
            f"rank {receiver} expects {amount(ours, has_tag, has_device)} (tag {call.tag})",
            kind=call.kind.label,
            group=self._control.name,
            ranks=[sender, receiver],
            details=[
                f"rank {sender} called {theirs['function']} at {sites[theirs['call_site']]}",
                f"rank {receiver} called {ours['function']} at {sites[ours['call_site']]}",
                "the message stays in the backend, so the group is unusable",
            ],
        )
        raise self._engine.on_trouble(error)

    def _compare_orders(
        self, call: Call, source: int, theirs: dict[str, Any], ours: dict[str, Any]
    ) -> None:
        """Raise when the communicator cannot come to the two sides at once."""
        orders = differing_orders(theirs, ours)
        if orders is not None:
            raise self._unlike(call, source, theirs, ours, orders, _ONE, _IN_ORDER)

    def _unlike(
        self,
        call: Call,
        source: int,
        theirs: dict[str, Any],
        ours: dict[str, Any],
        how: tuple[str, str],
        why: str,
        hint: str,
    ) -> DistError:
        """The group is given up for the way in which the sides of a message are called."""
        names = self._control.names
        sender, receiver = names[source], names[self._control.rank]
        sites = shorten([theirs["call_site"], ours["call_site"]])
        error = MismatchError(
            f"message on group '{self._control.name}' {DIFFERS}"
            f"rank {sender} sends it {how[0]}, rank {receiver} receives it {how[1]}",
            kind=call.kind.label,
            group=self._control.name,
            ranks=[sender, receiver],
            details=[
                f"rank {sender} called {theirs['function']} at {sites[theirs['call_site']]}",
                f"rank {receiver} called {ours['function']} at {sites[ours['call_site']]}",
                why,
                "the message stays in the backend, so the group is unusable",
            ],
            hint=hint,
        )
        return self._engine.on_trouble(error)


class ReceivePending:
    """A receive that the backend has, compared when it has ended."""

    __slots__ = (
        "__weakref__",
        "_error",
        "_messages",
        "call",
        "header",
        "inner",
        "is_certain",
        "is_compared",
        "is_taken",
        "site",
        "tag",
        "way",
    )

    def __init__(
        self, messages: Messages, call: Call, tag: int, way: MessageWay, site: str
    ) -> None:
        self._messages = messages
        self.way = way
        #: The program's line; another thread may compare.
        self.site = site
        #: Whether its header was looked at while the backend had it.
        self.is_compared = False
        self._error: DistError | None = None
        #: Whether its header was looked at.
        self.is_taken = False
        self.call = call
        self.tag = tag
        self.header: Message | None = None
        self.inner: Pending | None = None
        #: Whether the next header from its source is its own.
        self.is_certain = True

    def expect(self, source: int) -> None:
        """Post the receive of the header."""
        self.header = self._messages.expect(self.call, source, self.tag)

    def look_ahead(self, is_late: bool) -> None:
        """Compare what is known of it while the backend has it."""
        self._messages.look_ahead(self, is_late=is_late)

    def done(self) -> bool:
        """Whether the receive has ended."""
        return self._error is not None or (self.inner is not None and self.inner.done())

    def wait(self, deadline_ns: int) -> None:
        """Wait for the backend, then compare."""
        if self._error is not None:
            raise self._error
        assert self.inner is not None  # set before anybody has this object
        self.inner.wait(deadline_ns)
        if self.is_taken:
            return
        self.is_taken = True
        try:
            self._messages.take(self, self.inner.source_rank())
        except DistError as error:
            self._error = error
            raise

    def source_rank(self) -> int:
        """Whose message it was."""
        return -1 if self.inner is None else self.inner.source_rank()

    def __del__(self) -> None:
        if not self.is_taken and self.call.peer < 0:
            self._messages.lose(self.tag)
