"""RecordedEngine: the record of a backend that is not ours; our own engine records itself.

The end of an asynchronous op is noticed, and written, when the program asks for it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from distdbg.control.clock import FREE_CLOCK, JobClock
from distdbg.errors import DistError
from distdbg.native import Form, RecordedOp, Recorder, TappedOp
from distdbg.ops.around import EngineAround, PendingAround
from distdbg.ops.call import Call, Kind
from distdbg.ops.engine import Engine, Pending
from distdbg.record.format import Flag, Status
from distdbg.record.forms import write_form
from distdbg.record.writing import status_of, write_error
from distdbg.runtime.arrays.device_arrays import device_text
from distdbg.runtime.handles.waits import waiting_for

if TYPE_CHECKING:
    from distdbg.runtime.process.debugger_seam import Through

_MAX_FORMS = 1024
NO_DEADLINE = 2**63 - 1
#: Held while it is decided which thread records the end of an op.
_ENDING = threading.Lock()


class RecordedEngine(EngineAround):
    """Implements Engine around one that keeps no record; see distdbg/ops/engine.py."""

    def __init__(
        self,
        inner: Engine,
        recorder: Recorder,
        group: int,
        ranks: Sequence[int],
        clock: JobClock = FREE_CLOCK,
        on_other_rules: Through | None = None,
    ) -> None:
        self.inner = inner
        #: Says which breakpoints are armed.
        self._clock = clock
        self._seen_rules = 0
        #: Asked by an op that has found other ones; None: none looks.
        self._on_other_rules = on_other_rules
        self.recorder = recorder
        #: The group's number in the record.
        self.group_number = group
        self._ranks = ranks
        #: The number of collectives so far.
        self.count = 0
        self.message_counts: Counter[tuple[Kind, int]] = Counter()
        self._forms: dict[object, Form] = {}
        #: The same by what is cheap to ask: each op looks here first.
        self._quick_forms: dict[object, Form] = {}

    def run(self, call: Call) -> int:
        """Carry out `call`, and record it."""
        other = self._other_rules()
        if other is not None:
            return other.run(call)
        op = self._begin(call, 0)
        try:
            source = self.inner.run(call)
        except BaseException as error:
            self.end(op, error)
            raise
        op.ended(int(Status.OK), source)
        return source

    def submit(self, call: Call) -> Pending:
        """Start `call`; its end is recorded when it is noticed."""
        other = self._other_rules()
        if other is not None:
            return other.submit(call)
        op = self._begin(call, int(Flag.ASYNC) | self._noticed(call))
        try:
            pending = self.inner.submit(call)
            queued = getattr(call, "queued", None)
            if queued is not None:
                op.set_begin(queued)
            return RecordedPending(pending, self, op, self.recorder)
        except BaseException as error:
            self.end(op, error)
            raise

    def skip_number(self) -> None:
        """Other ranks have an op here that this one had elsewhere: a difference, which it was told."""
        self.count += 1

    def next_seq(self, call: Call) -> int:
        """The number that `call` will have if it is the next."""
        if call.kind >= Kind.SEND:
            return self.message_counts[call.kind, call.peer] + 1
        return self.count + 1

    def find_left(self) -> list[int]:
        """Return the group ranks that are known to have left the group."""
        find = getattr(self.inner, "find_left", None)
        return [] if find is None else list(find())

    def end(self, op: RecordedOp | TappedOp, error: BaseException) -> None:
        """Record that the op failed, and with what."""
        number = op.number
        op.ended(int(status_of(error)), -1)
        if isinstance(error, DistError):
            write_error(self.recorder, self.group_number, number, error)

    def _noticed(self, call: Call) -> int:
        """The flag of an op whose end is known by whoever asks or waits for it alone."""
        is_reported = call.kind < Kind.SEND and getattr(self.inner, "tells_ends", False)
        return 0 if is_reported else int(Flag.END_NOTICED)

    def _other_rules(self) -> Engine | None:
        """None: the same breakpoints are armed as before."""
        generation = self._clock.break_generation
        if generation == self._seen_rules or self._on_other_rules is None:
            return None
        self._seen_rules = generation
        return self._on_other_rules(self)

    def _begin(self, call: Call, flags: int) -> RecordedOp:
        peer, seq, tag = -1, 0, 0
        if call.kind >= Kind.SEND:
            key = (call.kind, call.peer)
            self.message_counts[key] += 1
            peer, seq, tag = call.peer, self.message_counts[key], call.tag
            flags |= int(Flag.MESSAGE)
        else:
            self.count += 1
            seq = self.count
        return self.recorder.begin(self.group_number, self.form_of(call), seq, tag, peer, flags)

    def form_of(self, call: Call) -> Form:
        """What the record says of all calls like this one."""
        key = _quick_key(call)
        form = None if key is None else self._quick_forms.get(key)
        if form is None:
            form = self._make_form(call)
            if key is not None:
                if len(self._quick_forms) >= _MAX_FORMS:
                    self._quick_forms.clear()
                self._quick_forms[key] = form
        return form

    def _make_form(self, call: Call) -> Form:
        inputs, outputs = _shapes(call.inputs), _shapes(call.outputs)
        dtype, device = _describe([*call.inputs, *call.outputs])
        op = "" if call.op is None else call.op.op.name
        splits = (tuple(call.input_splits or ()), tuple(call.output_splits or ()))
        part = None if call.part is None else (call.part.place, len(call.part.contents))
        key = (call.kind, call.name, op, call.root, inputs, outputs, dtype, device, splits, part)
        form = self._forms.get(key)
        if form is None:
            if len(self._forms) >= _MAX_FORMS:
                self._forms.clear()
            name = call.name or call.kind.label
            nbytes = max(_nbytes(call.inputs), _nbytes(call.outputs))
            text = write_form(
                name=name,
                kind=call.kind.label,
                dtype=dtype,
                device=device,
                op=op,
                root=self._ranks[call.root] if call.root >= 0 else None,
                inputs=inputs,
                outputs=outputs,
                input_splits=call.input_splits,
                output_splits=call.output_splits,
                nbytes=nbytes,
                part=part,
            )
            form = self._forms[key] = Form(text, name, int(call.kind), nbytes, 0, dtype)
        return form


class RecordedPending(PendingAround):
    """Implements Pending around another one."""

    __slots__ = ("_engine", "_number", "_op", "_recorder")

    def __init__(
        self, inner: Pending, engine: RecordedEngine, op: RecordedOp | TappedOp, recorder: Recorder
    ) -> None:
        self.inner = inner
        self._engine = engine
        self._op: RecordedOp | TappedOp | None = op
        self._recorder = recorder
        self._number = op.number

    @property
    def number(self) -> int:
        """The number of the op in the record."""
        return self._number

    def wait(self, deadline_ns: int) -> None:
        """Wait for the end and record it; when only this wait gives up, the op has not ended."""
        try:
            if self.inner.done():
                self.inner.wait(deadline_ns)
            else:
                with waiting_for(self._recorder, self._number, deadline_ns != NO_DEADLINE):
                    self.inner.wait(deadline_ns)
        except DistError as error:
            if self.inner.done():
                failed = self._take_op()
                if failed is not None:
                    self._engine.end(failed, error)
            raise
        op = self._take_op()
        if op is not None:
            op.ended(int(Status.OK), self.inner.source_rank())

    def _take_op(self) -> RecordedOp | TappedOp | None:
        """The op whose end is to be recorded; once, however many threads see it end."""
        with _ENDING:
            op, self._op = self._op, None
        return op

    def end_behind(self, future: Any) -> None:
        """The backend's future is done with having queued the op: its device tells the end."""
        op = self._op
        if op is not None:
            op.end_behind(future)
            self._take_op()

    def left_device(self) -> None:
        """The backend says that its device has done it."""
        if self._op is not None:
            self._op.left_device()

    def note_end(self, error: BaseException | None = None) -> None:
        """The backend says that the op has ended, before anybody has asked; on any thread."""
        op = self._take_op()
        if op is None:
            return
        if error is not None:
            self._engine.end(op, error)
        else:
            op.ended(int(Status.OK), -1)

    def has_failed(self) -> bool:
        """Whether the op has ended with an error."""
        try:
            if self.done():
                self.wait(NO_DEADLINE)
        except DistError:
            return True
        return False


def _quick_key(call: Call) -> object | None:
    """What the form of a call depends on, as its arrays give it; None where they do not."""
    try:
        key = (
            call.kind,
            call.name,
            None if call.op is None else call.op.code,
            call.root,
            call.part,
            tuple(call.input_splits or ()),
            tuple(call.output_splits or ()),
            len(call.inputs),
            len(call.outputs),
            *[(x.shape, x.dtype, x.device) for x in call.inputs],
            *[
                (x.shape, x.dtype, x.device)
                for x in call.outputs
                if call.outputs is not call.inputs
            ],
        )
        hash(key)
    except (AttributeError, TypeError, IndexError):
        return None
    return key


def _shapes(arrays: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(n) for n in getattr(x, "shape", ())) for x in arrays)


def _describe(arrays: Sequence[Any]) -> tuple[str, str]:
    if not arrays:
        return "", ""
    dtype = str(getattr(arrays[0], "dtype", "")).removeprefix("torch.")
    return dtype, device_text(arrays[0])


def _nbytes(arrays: Sequence[Any]) -> int:
    return sum(int(getattr(x, "nbytes", 0)) for x in arrays)
