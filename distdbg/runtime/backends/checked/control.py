"""The control group of another backend: shared memory of our own beside it.

Its ranks agree on each op of the backend before (or while) that op runs. An agreement is a plan of one
gate whose fingerprint is that of the other op, so ranks that differ, are late or gone are found
and reported by the same code as for our own engine. Ops of both have the same numbers.

An exchange of blocks of different sizes cannot be compared by one number: there every rank brings its
description, and each looks at the whole matrix.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from distdbg.check.explain import describe, explain_mismatch
from distdbg.check.signature import fingerprint
from distdbg.config import read_setting
from distdbg.errors import (
    CollectiveError,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    format_ranks,
)
from distdbg.native import Form, Group, Message, NativeError, Plan, View
from distdbg.ops.call import Call, Kind
from distdbg.ops.dtypes import Dtype
from distdbg.record.durations import duration_text
from distdbg.record.handled_error import raise_instead
from distdbg.record.writing import make_recorder
from distdbg.runtime.backends import compile as compiling
from distdbg.runtime.backends.checked.agreement import Agreement
from distdbg.runtime.backends.checked.array_facts import key_of
from distdbg.runtime.backends.checked.call_facts import call_facts
from distdbg.runtime.backends.checked.description_table import MAX_WORDS, DescriptionTable
from distdbg.runtime.backends.failures import to_public
from distdbg.runtime.backends.reported_difference import BROKEN, DIFFERS, reported_difference
from distdbg.runtime.backends.shared_memory import connect
from distdbg.runtime.members.absent import doing, where_is
from distdbg.runtime.members.member_liveness import MemberProcess, NewGroupMembers
from distdbg.runtime.members.out_of_batches import tell_out_of_batches
from distdbg.runtime.net.between import HostLinks
from distdbg.runtime.plan import Topology
from distdbg.runtime.plan.steps import Step, StepKind
from distdbg.runtime.store import PrefixStore

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

#: A rank that died after it agreed may have done its part: so long the backend may still end well.
GRACE_NS = 500_000_000
_HEADER = Form(b"{}", "header", int(Kind.SEND), 0, 0)
_GATE = compiling.step_tuple(Step(StepKind.GATE))
_PLANS = 1024


class ControlGroup:
    """One rank's side of it."""

    def __init__(self, store: Store, group: ProcessGroup, reads_strides: bool) -> None:
        self.name = group.label
        self.names = list(group.ranks)
        self.rank = group.rank()
        self._size = group.size()
        self._world = group.world
        #: The time of the job, in which deadlines are counted here.
        self.clock = group.world.control
        self._reads_strides = reads_strides
        self._members = group.members
        #: How long an op may take that brings no limit of its own.
        self.timeout_ns = int(group.timeout_s * 1e9)
        #: What is known of a rank that does not come, for messages.
        self._where = partial(where_is, group)
        self._doing = partial(doing, group)
        #: Adds to an error what the records of the ranks show of its cause.
        self._tell_more = partial(tell_out_of_batches, group)
        own = PrefixStore("control/", store)
        self._between = HostLinks(own, self.rank, [life.process for life in group.members])
        try:
            self._group = connect(
                own,
                rank=self.rank,
                size=self._size,
                group_name=self.name,
                ranks_here=group.world.ranks_here or self._size,
                single_copy=bool(read_setting("DISTDBG_SINGLE_COPY")),
                deadline_ns=self.clock.now_ns() + self.timeout_ns,
                clock=self.clock,
                control=group.world.native_control,
                lives=NewGroupMembers(self.name, group.ranks, group.members),
                between=self._between,
            ).group
        except BaseException:
            self._between.close()
            raise
        self._topology = Topology(
            single_copy=self._group.single_copy,
            slot_nbytes=self._group.slot_nbytes,
            slots_nbytes=self._group.slot_nbytes,
            hosts=self._between.hosts,
        )
        # Not the rank's record, where the ops of the backend are: here it only knows the lines that
        # called the last ones, for messages.
        self._recorder = make_recorder(
            None, rank=group.ranks[self.rank], world_size=self._size, run="", ring_count=16
        )
        number = self._recorder.add_group(
            group.group_name, self.name, "", "", self._size, self.rank, self.timeout_ns
        )
        self._group.set_recorder(self._recorder, number, lambda is_send, view: _HEADER)
        self.seqs = itertools.count(1)
        self.begun = 0  # ops that this rank has begun to agree on
        self._plans: dict[tuple[Any, ...], Plan] = {}
        self._died_ns: dict[int, int] = {}

    @property
    def native(self) -> Group:
        """The group in shared memory."""
        return self._group

    def set_timeout(self, timeout_s: float) -> None:
        """Set the limit for ops that bring none of their own."""
        self.timeout_ns = int(timeout_s * 1e9)

    def limit_ns(self, call: Call) -> int:
        """How long the op may take."""
        return self.timeout_ns if call.timeout_s is None else int(call.timeout_s * 1e9)

    def set_level(self, level: int) -> None:
        """At 0 (OFF) ranks meet without comparing; told to native code where it knows levels."""
        tell = getattr(self._group, "set_level", None)
        if tell is not None:
            tell(2 if level > 0 else 0)  # an agreement always waits for all: it has nothing else

    # ---------------------------------------------------------------------------- agreements

    def agree(self, call: Call) -> int:
        """Block until all ranks are known to mean the same op; return its number."""
        table = self._table(call)
        seq = self.begun = next(self.seqs)
        started_ns = time.monotonic_ns()
        try:
            self._group.run(*self._arguments(call, table))
        except NativeError as error:
            self.fail(call, error, started_ns)
        if table is not None:
            self._compare(table, seq)
        return seq

    def submit(self, call: Call) -> Agreement:
        """Start to agree; native code carries it through without the GIL."""
        table = self._table(call)
        started_ns = time.monotonic_ns()
        self.begun = next(self.seqs)
        agreement = Agreement(self, call, self.begun, table, started_ns)
        try:
            agreement.handle = self._group.submit(*self._arguments(call, table))
        except NativeError as error:
            self.fail(call, error, started_ns)
        return agreement

    def wait(self, agreement: Agreement, deadline_ns: int) -> None:
        """Wait for one that was submitted."""
        handle = agreement.handle
        assert handle is not None  # submit() failed otherwise, and nobody has the agreement
        try:
            try:
                self._group.wait_op(handle, deadline_ns)
            except NativeError:
                if not handle.done:
                    raise
                self._group.wait_op(handle, deadline_ns)  # it ended as the wait gave up
        except NativeError as error:
            self.fail(agreement.call, error, agreement.started_ns, not handle.done)
        if agreement.table is not None:
            self._compare(agreement.table, agreement.seq)

    def _arguments(self, call: Call, table: DescriptionTable | None) -> tuple[Any, ...]:
        self._adopt_comm()
        code = call.kind | (call.root + 1) << 16 | (0 if call.op is None else call.op.code << 8)
        plan = self.plan(call) if table is None else self._table_plan(call, table)
        return (
            code,
            () if table is None else (View(table.mine, False),),
            () if table is None else (View(table.all, True),),
            self.limit_ns(call),
            call,
            lambda call, inputs, outputs: plan,
            -1,  # kept here, by more facts than native code sees
        )

    # --------------------------------------------------------------------------------- facts

    def _facts(self, call: Call) -> tuple[dict[str, Any], list[int] | None, list[int] | None]:
        return call_facts(call, self._size, self._reads_strides)

    def _words(self, call: Call) -> bytes:
        """What this rank says of its call when ranks differ; native code adds the line."""
        facts, sends, expects = self._facts(call)
        if "root" in facts:
            facts["root"] = self.names[call.root]
        return describe(facts, call.function, sends, expects)

    def _adopt_comm(self) -> None:
        recorder = self._world.recorder
        if recorder is not None and recorder.comm != self._recorder.comm:
            self._recorder.set_comm(recorder.comm)

    def call_site(self) -> str:
        """Return the line that called, outside of this package."""
        return self._recorder.call_site(MAX_WORDS)

    def plan(self, call: Call) -> Plan:
        """The agreement on a call; not of one that exchanges blocks of different sizes."""
        key = key_of(call)
        try:
            plan = self._plans.get(key)
        except TypeError:  # a dtype or shape of somebody's that cannot be hashed
            return self._make_plan(call, [_GATE])
        if plan is None:
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            plan = self._plans[key] = self._make_plan(call, [_GATE])
        return plan

    def _make_plan(
        self,
        call: Call,
        steps: Sequence[compiling.StepTuple],
        in_cuts: Sequence[tuple[int, int, int]] = (),
        out_cuts: Sequence[tuple[int, int, int]] = (),
    ) -> Plan:
        return Plan(
            steps,
            in_cuts,
            out_cuts,
            0,
            int(Dtype.uint8),
            fingerprint(self._facts(call)[0]),
            self._size,
            self._topology.slot_nbytes,
            self._words(call),
            Form(b"{}", call.name or call.kind.label, int(call.kind), 0, 0),
            call.part is not None and call.part.place > 0,
        )

    # ------------------------------------------------------------------------------- exchange

    def _table(self, call: Call) -> DescriptionTable | None:
        if call.kind is not Kind.ALL_TO_ALL or self._size == 1:
            return None
        site = json.dumps(self.call_site()).encode()
        # What is compared by its fingerprint need not travel.
        facts, sends, expects = self._facts(call)
        words = describe(
            {"kind": facts["kind"]}, (call.name or call.kind.label)[:MAX_WORDS], sends, expects
        )
        return DescriptionTable(words + b', "call_site": ' + site + b"}", self._size)

    def _table_plan(self, call: Call, table: DescriptionTable) -> Plan:
        row = table.row_nbytes
        in_cuts = [(0, 0, row)]
        out_cuts = [(0, rank * row, row) for rank in range(self._size)]
        gather = Call(Kind.ALL_GATHER, (), ())
        plan = compiling.plan_for(
            gather, Dtype.uint8, in_cuts, out_cuts, self.rank, self._size, self._topology
        )
        steps = [compiling.step_tuple(step) for step in plan.steps]
        return self._make_plan(call, steps, in_cuts, out_cuts)

    def _compare(self, table: DescriptionTable, seq: int) -> None:
        if not table.fits():
            differs = explain_mismatch(
                table.rows(),
                group=self.name,
                seq=seq,
                global_ranks=self.names,
                this_rank=self.names[self.rank],
            )
            self._tell_more(differs)
            raise differs

    # -------------------------------------------------------------------------------- failures

    @property
    def is_broken(self) -> bool:
        """Whether nobody can use it any more."""
        return self._group.cause() is not None

    @property
    def can_tell_death(self) -> bool:
        """Whether other processes are watched."""
        return bool(self._between.hosts) or any(life.watched is not None for life in self._members)

    def look(self, call: Call, seq: int, started_ns: int, grace_ns: int = GRACE_NS) -> None:
        """Raise when an op that all agreed on cannot be hoped to end: a peer died, or it is late.

        `started_ns` is job time.
        `seq` 0: a point to point op, that needs its peer (or, from any source, all of them).
        """
        what = self.op_text(call, seq)
        fields: dict[str, Any] = {"kind": call.kind.label, "seq": seq or -1, "group": self.name}
        now = self.clock.now_ns()
        self._group.look()
        cause, differs = self._group.cause(), self.reported_mismatch()
        if cause is not None and differs is None:
            grace_ns = 0  # another rank has given up already: nothing better comes from the backend
        for rank, life in enumerate(self._members):
            if seq == 0 and call.peer >= 0 and rank != call.peer:
                continue
            how = self._how_died(rank, life, also_left=call.kind is Kind.SEND)
            if how is None or now - self._died_ns.setdefault(rank, now) < grace_ns:
                continue
            reported = self._group.how_left(rank)
            if reported.startswith("left ("):
                left = RankLeft(
                    f"{what} cannot complete: rank {self.names[rank]} {reported}",
                    peer=self.names[rank],
                    how=reported,
                    ranks=[self.names[rank]],
                    details=[*self._place_words(rank), BROKEN],
                    **fields,
                )
                self._tell_more(left)
                raise left
            raise PeerLost(
                f"rank {self.names[rank]} {how}; this rank needed it in {what}",
                peer=self.names[rank],
                how=how,
                details=[BROKEN],
                **fields,
            )
        if differs is not None:
            raise differs
        self.clock.check(**fields, op=what)
        limit_ns = self.limit_ns(call)
        is_late = now - started_ns > limit_ns + grace_ns
        # The same limit is over here: who was the first to look does not matter.
        if cause is not None and not (is_late and _WAITED in cause[4]):
            by = f"rank {self.names[cause[1]]}" if cause[1] >= 0 else "a rank"
            raise CollectiveError(
                f"{what} cannot end: {by} reports: {cause[4]}",
                ranks=[self.names[cause[1]]] if cause[1] >= 0 else [],
                details=[BROKEN],
                **fields,
            )
        if is_late:
            waited_s = (now - started_ns) / 1e9
            missing: list[int] = []
            if seq:
                known = f"ranks {format_ranks(self.names)} agreed on it"
            elif call.peer >= 0:
                missing = [self.names[call.peer]]
                known = f"the other side is rank {missing[0]} (tag {call.tag})"
            else:
                known = f"no rank has sent (tag {call.tag})"
            raise OpTimeout(
                f"{what} waited {duration_text(waited_s)} {_WAITED} {known}",
                missing=missing,
                arrived=self.names if seq else [],
                waited_s=waited_s,
                details=[
                    *(["the backend did not keep its own timeout"] if grace_ns else []),
                    *(self._place_words(call.peer) if missing else []),
                    BROKEN,
                ],
                **fields,
            )

    def _place_words(self, rank: int) -> list[str]:
        place = self._where(rank)
        return [] if place is None else [f"rank {self.names[rank]}: {place}"]

    def _how_died(self, rank: int, life: MemberProcess, also_left: bool) -> str | None:
        if also_left and self._group.facts()[rank][3]:  # alive, and receives nothing any more
            return self._group.how_left(rank)
        if life.watched is not None:
            return life.watched.how() if life.watched.is_dead() else None
        if rank == self.rank or not self._between.hosts or not self._group.facts()[rank][3]:
            return None
        how = self._group.how_left(rank)
        return None if how.startswith("left (") else how

    def op_text(self, call: Call, seq: int) -> str:
        """What messages call the op."""
        number = f" #{seq}" if seq else ""
        return f"{call.name or call.kind.label}{number} on group '{self.name}'"

    def reported_mismatch(self) -> MismatchError | None:
        """Return the difference that another rank found and broke the group for."""
        self._group.look()
        cause = self._group.cause()
        if cause is None or DIFFERS not in cause[4]:
            return None
        rank = self.names[cause[1]] if cause[1] >= 0 else -1
        return reported_difference(cause[4], f"rank {rank}", group=self.name)

    # ------------------------------------------------------------------------- point to point

    def post(self, call: Call, words: bytes | None, nbytes: int, peer: int, tag: int) -> Message:
        """Start to send a header of at most so many bytes beside a message of the backend, or to receive one.

        It has no deadline: a message may lie in the backend for as long as nobody receives it.
        """
        try:
            return self._group.post_note(words, nbytes, peer, tag)
        except NativeError as error:
            self.fail(call, error, time.monotonic_ns())

    def has_come(self, header: Message) -> bool:
        """Whether a header has been taken, or is here; never blocks."""
        return self._group.is_message_done(header)

    def are_sends_received(self) -> bool:
        """Whether the other sides have all headers that this one has sent; never blocks."""
        return self._group.are_sends_received()

    def await_header(self, call: Call, header: Message, deadline_ns: int, breaks: bool) -> None:
        """Block until the header is there; `breaks`: the deadline is that of the op itself."""
        started_ns = time.monotonic_ns()
        try:
            self._group.wait_message(header, deadline_ns, breaks)
        except NativeError as error:
            self.fail(call, error, started_ns, goes_on=not breaks)

    def abort(self, reason: str) -> None:
        """Break the group: whoever waits in it, or comes to it, learns the reason."""
        self._group.abort(reason)

    def leave_because(self, why: str, at_once: bool) -> None:
        """See CheckedEngine.leave_because."""
        self._group.leave_because(why, at_once)

    def has_left(self, rank: int) -> bool:
        """Whether a group rank has left the group."""
        return self._group.has_left(rank)

    def find_left(self) -> list[int]:
        """Return the group ranks that have left the group."""
        return [rank for rank, facts in enumerate(self._group.facts()) if facts[3]]

    def close(self) -> None:
        """Leave it; idempotent."""
        self._group.close()
        self._between.close()

    def fail(
        self, call: Call, error: NativeError, started_ns: int, goes_on: bool = False
    ) -> NoReturn:
        """Raise what an error of native code means for this call."""
        # Of this very op, when another rank has compared it sooner: ranks of several hosts pass a gate one
        # after the other.
        differs = self.reported_mismatch() if error.fault == "broken" and error.seq else None
        if differs is not None:
            raise_instead(differs, error)
        public = to_public(
            error,
            call,
            group=self._group,
            name=self.name,
            rank=self.rank,
            global_ranks=self.names,
            waited_s=(time.monotonic_ns() - started_ns) / 1e9,
            goes_on=goes_on,
            where=self._where,
            doing=self._doing,
        )
        self._tell_more(public)
        raise_instead(public, error)


#: Said of a rank whose op the backend did not end in time.
_WAITED = "for the backend;"
