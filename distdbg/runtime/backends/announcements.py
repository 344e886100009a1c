"""Announcements: an op that some ranks have on the host and others on a GPU, found before its limit.

Ops on the host and ops on a GPU have orders of their own, and wait for the other ranks in memory of their
own: a rank in the one and a rank in the other would wait until the limit. So each op is also announced in a
third group, where nothing but that is compared, and nobody waits. Where it differs

    the ranks with the op on a GPU     come to the host's order with a gate (place_check.py), so those on the
                                       host find there a difference as of any other op;
    the ranks with the op on the host  come to the GPU's order, when they have found it (elsewhere.py).

So each order has this op once on all ranks, each rank is told by the check that it waits in, with both lines,
and both orders go on.

Only the thread that made the group announces: what another thread does on the host at the same time, as one
that writes a checkpoint, may come before an op on a GPU on one rank and after it on another.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from distdbg.config import read_setting
from distdbg.errors import MismatchError
from distdbg.native import Form, Group, NativeError, Op, Plan
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.runtime.backends import compile as compiling
from distdbg.runtime.backends.place_check import PlaceCheck
from distdbg.runtime.backends.shared_memory import connect
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.handles.work import NO_DEADLINE
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.net.between import HostLinks
from distdbg.runtime.plan.steps import Step, StepKind
from distdbg.runtime.store import PrefixStore

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: At INFO a rank that has an op on a GPU may come to that on the host next, when ranks call two ops in
#: different orders. So long it is given to do so.
GRACE_NS: Final = 5_000_000_000
_GATE: Final = compiling.step_tuple(Step(StepKind.GATE))


class Announcements:
    """One rank's side of them. `host`: the native group of the ops on the host."""

    def __init__(self, group: ProcessGroup, store: Store, host: Group) -> None:
        self.clock = group.world.control
        self.host = host
        self.places = PlaceCheck(host, group)
        self.limit_ns = int(group.timeout_s * 1e9)
        self._thread = threading.get_ident()
        self._is_on = True
        own = PrefixStore("announcements/", store)
        self._between = HostLinks(own, group.rank(), [life.process for life in group.members])
        try:
            self._native = connect(
                own,
                rank=group.rank(),
                size=group.size(),
                group_name=group.label,
                ranks_here=group.world.ranks_here or group.size(),
                single_copy=bool(read_setting("DISTDBG_SINGLE_COPY")),
                deadline_ns=self.clock.now_ns() + self.limit_ns,
                clock=self.clock,
                control=group.world.native_control,
                lives=NewGroupMembers(group.label, group.ranks, group.members),
                between=self._between,
            ).group
        except BaseException:
            self._between.close()
            raise
        self._on_host, self._on_gpu = (self._gate(number, group.size()) for number in (1, 2))
        self.set_level(level_of(group.world).value)

    def on_gpu(self, call: Call) -> Announced | None:
        """This rank has the op on a GPU; None: it is not announced."""
        op = self._announce(call, self._on_gpu)
        return None if op is None else Announced(self, call, op)

    def on_host(self, call: Call) -> None:
        """This rank has the op on the host."""
        self._announce(call, self._on_host)

    def turn_off(self) -> None:
        """Announce nothing more: an op was announced that did not come to be."""
        self._is_on = False

    def has_failed(self, op: Op) -> bool:
        """Whether it has ended as a difference between the ranks; never blocks."""
        if not op.done:
            return False
        try:
            self._native.wait_op(op, NO_DEADLINE)
        except NativeError as error:
            return error.fault == "mismatch"
        return False

    def set_level(self, level: int) -> None:
        """At 0 (OFF) nothing is compared."""
        with suppress(NativeError):
            self._native.set_level(2 if level > 0 else 0)

    def abort(self, reason: str) -> None:
        """Break it on all ranks."""
        with suppress(NativeError):
            self._native.abort(reason[:200])

    def close(self) -> None:
        """Leave; idempotent."""
        self._is_on = False
        self._native.close()
        self._between.close()

    def _announce(self, call: Call, plan: Plan) -> Op | None:
        if call.kind >= Kind.SEND or not self._is_on or threading.get_ident() != self._thread:
            return None
        try:
            return self._native.meet(plan, NO_DEADLINE // 2)
        except NativeError:  # a rank is gone, or has given the group up: the op itself says so
            self._is_on = False
            return None

    def _gate(self, number: int, size: int) -> Plan:
        form = Form(b"{}", "announcement", int(Kind.BARRIER), 0, 0)
        return Plan(
            [_GATE], [], [], 0, int(Dtype.uint8), number, size, self._native.slot_nbytes, b"{", form, False
        )  # fmt: skip


class Announced:
    """An op that this rank has on a GPU."""

    __slots__ = ("_all", "_call", "_found_ns", "_has_come", "_op", "_site")

    def __init__(self, announcements: Announcements, call: Call, op: Op) -> None:
        self._all = announcements
        self._call = call
        self._op = op
        self._site = announcements.host.site()
        #: When it was seen that ranks differ.
        self._found_ns = 0
        self._has_come = False

    def look(self, *, waits: bool) -> bool:
        """Whether it is on the host on another rank; it is told then. `waits`: nothing else is done here.

        Never blocks.
        """
        if self._has_come:
            return True
        if not self._all.has_failed(self._op):
            return False
        now_ns = self._all.clock.now_ns()
        self._found_ns = self._found_ns or now_ns
        if not waits and now_ns - self._found_ns < GRACE_NS:
            return False
        self._has_come = True
        limit_ns = self._all.limit_ns
        if self._call.timeout_s is not None:
            limit_ns = int(self._call.timeout_s * 1e9)
        with suppress(MismatchError):  # told by the check that this rank waits in
            self._all.places.begin(self._call, limit_ns, self._site)
        return True
