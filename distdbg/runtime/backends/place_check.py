"""PlaceCheck: the ranks of a group find out before an op whether all of them have its arrays on a GPU.

What carries out ops on a GPU waits for the other ranks in memory of its own, and so do ops on the host: a
rank of the one and a rank of the other would never meet. So an op on a GPU begins with one in the memory of
the host's ops, which moves nothing. Where all ranks begin it, they go on on the GPU; where one has its array
on the host it comes there with that op, which is another one: all are told the difference, as for any other,
and nothing was exchanged.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NoReturn

from distdbg.check.explain import describe
from distdbg.check.signature import fingerprint
from distdbg.errors import MismatchError
from distdbg.native import Form, Group, NativeError, Op, Plan
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.record.handled_error import raise_instead
from distdbg.runtime.backends import compile as compiling
from distdbg.runtime.backends.checked.array_facts import key_of
from distdbg.runtime.backends.checked.call_facts import call_facts
from distdbg.runtime.backends.failures import to_public
from distdbg.runtime.members.absent import doing, where_is
from distdbg.runtime.members.out_of_batches import tell_out_of_batches
from distdbg.runtime.plan.steps import Step, StepKind

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup

_GATE: Final = compiling.step_tuple(Step(StepKind.GATE))
_MAX_PLANS: Final = 256


class PlaceCheck:
    """The check of one group, over the native group of its ops on the host."""

    def __init__(self, host: Group, group: ProcessGroup) -> None:
        self._host = host
        self._group = group
        self._plans: dict[tuple[Any, ...], Plan] = {}

    def begin(self, call: Call, limit_ns: int) -> PlaceMeeting:
        """Start to meet; in the order of the program's calls, on the thread that calls."""
        started_ns = time.monotonic_ns()
        try:
            op = self._host.meet(self._plan(call), limit_ns)
        except NativeError as error:
            self._fail(call, error, started_ns)
        return PlaceMeeting(self, call, op, started_ns)

    def end(self, meeting: PlaceMeeting, deadline_ns: int) -> None:
        """Wait until all have come, and raise where one has come with another op."""
        try:
            self._host.wait_op(meeting.op, deadline_ns)
        except NativeError as error:
            self._fail(meeting.call, error, meeting.started_ns, goes_on=not meeting.op.done)

    def _fail(
        self, call: Call, error: NativeError, started_ns: int, *, goes_on: bool = False
    ) -> NoReturn:
        group = self._group
        public = to_public(
            error,
            call,
            group=self._host,
            name=group.label,
            rank=group.rank(),
            global_ranks=group.ranks,
            waited_s=(time.monotonic_ns() - started_ns) / 1e9,
            goes_on=goes_on,
            where=lambda rank: where_is(group, rank),
            doing=lambda rank: doing(group, rank),
        )
        tell_out_of_batches(group, public)
        raise_instead(public, error)

    def _plan(self, call: Call) -> Plan:
        key: tuple[Any, ...] | None = None
        if call.kind is not Kind.ALL_TO_ALL:  # whose splits are not in it
            key = key_of(call)
        try:
            plan = None if key is None else self._plans.get(key)
        except TypeError:  # a device of somebody's that cannot be hashed
            plan = key = None
        if plan is None:
            plan = self._make_plan(call)
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            if key is not None:
                self._plans[key] = plan
        return plan

    def _make_plan(self, call: Call) -> Plan:
        size = self._group.size()
        facts, sends, expects = call_facts(call, size, reads_strides=True)
        facts.setdefault("device", "cuda")  # a barrier has no array to say so
        number = fingerprint(facts)
        if "root" in facts:
            facts["root"] = self._group.ranks[call.root]
        return Plan(
            [_GATE],
            [],
            [],
            0,
            int(Dtype.uint8),
            number,
            size,
            self._host.slot_nbytes,
            describe(facts, call.function, sends, expects),
            Form(b"{}", call.name or call.kind.label, int(call.kind), 0, 0),
            call.part is not None and call.part.place > 0,
        )


def is_elsewhere(error: MismatchError) -> bool:
    """Whether an op on the host has found that other ranks have it on a GPU: only these name a device."""
    return any("device" in side.get("facts", {}) for side in error.sides)


class PlaceMeeting:
    """One, in flight."""

    __slots__ = ("_check", "call", "op", "started_ns")

    def __init__(self, check: PlaceCheck, call: Call, op: Op, started_ns: int) -> None:
        self._check = check
        self.call = call
        self.op = op
        self.started_ns = started_ns

    @property
    def done(self) -> bool:
        """Whether all have come, or none does any more; never blocks."""
        return self.op.done

    def wait(self, deadline_ns: int) -> None:
        """Block until all have come; raise what is wrong."""
        self._check.end(self, deadline_ns)
