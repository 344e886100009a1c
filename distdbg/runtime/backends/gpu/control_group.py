"""GpuControlGroup: in which ranks agree about an op on GPU arrays, beside that of the host's ops.

It is made by the first such op, which all ranks have to come to. One op takes several exchanges here; the
first of them carries what must be alike on all ranks, so that a wrong program is told before any memory
is touched. It has no record of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from distdbg.check.explain import describe
from distdbg.check.signature import fingerprint
from distdbg.config import read_setting
from distdbg.errors import DistStoreError, OpTimeout, RendezvousError
from distdbg.native import Form, Group, NativeError, Plan, View
from distdbg.ops.call import Call, Kind
from distdbg.ops.cuts import Cut, cut_blocks, is_input_cut, is_output_cut
from distdbg.ops.dtypes import Dtype
from distdbg.record.durations import duration_text
from distdbg.record.writing import make_recorder
from distdbg.runtime.backends import compile as compiling
from distdbg.runtime.backends.checked.array_facts import key_of
from distdbg.runtime.backends.checked.call_facts import call_facts
from distdbg.runtime.backends.checked.description_table import MAX_WORDS
from distdbg.runtime.backends.failures import to_public
from distdbg.runtime.backends.gpu.driver import Bytes
from distdbg.runtime.backends.shared_memory import connect
from distdbg.runtime.members.absent import doing, where_is
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.members.out_of_batches import tell_out_of_batches
from distdbg.runtime.net.between import HostLinks
from distdbg.runtime.plan import Topology
from distdbg.runtime.plan.steps import Step, StepKind
from distdbg.runtime.store import PrefixStore

if TYPE_CHECKING:
    from distdbg.runtime.groups.group import ProcessGroup
    from distdbg.runtime.store import Store

_GATE: Final = compiling.step_tuple(Step(StepKind.GATE))
_MOST_PLANS: Final = 256
_LEAST_NS: Final = 1_000_000


#: What calls like one say of it: the fingerprint, and the words for a difference.
Descriptions = dict[tuple[Any, ...], tuple[int, bytes]]


class OpHeader:
    """What one op says of itself: in each of its exchanges the same."""

    __slots__ = ("call", "deadline_ns", "fingerprint", "on_start", "seq", "started_ns", "words")

    def __init__(self, call: Call, names: Sequence[int], seq: int, known: Descriptions) -> None:
        self.call = call
        #: Of the op in the group.
        self.seq = seq
        said = None
        with suppress(TypeError):  # a device of somebody's that cannot be hashed
            said = known.get(key_of(call))
        if said is None or call.kind is Kind.ALL_TO_ALL:  # whose splits are not in the key
            said = _say(call, names)
            if len(known) >= _MOST_PLANS:
                known.clear()
            with suppress(TypeError):
                known[key_of(call)] = said
        self.fingerprint, self.words = said
        #: Job time.
        self.started_ns = 0
        self.deadline_ns = 0
        #: Called once, when all ranks have come to the first of its exchanges.
        self.on_start: Callable[[], object] | None = None


def _say(call: Call, names: Sequence[int]) -> tuple[int, bytes]:
    facts, sends, expects = call_facts(call, len(names), reads_strides=True)
    number = fingerprint(facts)
    if "root" in facts:
        facts["root"] = names[call.root]
    return number, describe(facts, call.function, sends, expects)


class GpuControlGroup:
    """One rank's side. Used by one thread at a time."""

    def __init__(
        self, store: Store, group: ProcessGroup, deadline_ns: int, look: Callable[[], None]
    ) -> None:
        """All ranks come to their first op; `look` is called until they have, and may raise."""
        self.name: Final = group.label
        self.names: Final = list(group.ranks)
        self.rank: Final = group.rank()
        self.size: Final = group.size()
        self.clock: Final = group.world.control
        self._world = group.world
        self._where = partial(where_is, group)
        self._doing = partial(doing, group)
        self._tell_more = partial(tell_out_of_batches, group)
        self._members = group.members
        own = PrefixStore("gpu_ops/", store)
        lives = NewGroupMembers(self.name, group.ranks, group.members)
        self._come(own, lives, deadline_ns, look)
        self._between = HostLinks(own, self.rank, [life.process for life in group.members])
        try:
            joined = connect(
                own,
                rank=self.rank,
                size=self.size,
                group_name=self.name,
                ranks_here=group.world.ranks_here or self.size,
                single_copy=bool(read_setting("DISTDBG_SINGLE_COPY")),
                deadline_ns=deadline_ns,
                clock=self.clock,
                control=group.world.native_control,
                lives=lives,
                between=self._between,
            )
        except BaseException:
            self._between.close()
            raise
        self._group: Final[Group] = joined.group
        self._topology = Topology(
            single_copy=self._group.single_copy,
            slot_nbytes=self._group.slot_nbytes,
            slots_nbytes=self._group.slot_nbytes,
            hosts=self._between.hosts,
            link=joined.link,
            overrides=joined.overrides,
        )
        # Not the rank's record, where the op is once: it only knows the lines that called, for messages.
        self._recorder = make_recorder(
            None, rank=self.names[self.rank], world_size=self.size, run="", ring_count=16
        )
        number = self._recorder.add_group(
            group.group_name, self.name, "", "", self.size, self.rank, int(group.timeout_s * 1e9)
        )
        message_form = Form(b"{}", "header", int(Kind.SEND), 0, 0)
        self._group.set_recorder(self._recorder, number, lambda is_send, view: message_form)
        self._plans: dict[object, Plan] = {}
        #: Of the calls of late.
        self.descriptions: Descriptions = {}

    def _come(
        self, store: Store, lives: NewGroupMembers, deadline_ns: int, look: Callable[[], None]
    ) -> None:
        """Wait for the keys of all ranks: who waits in native code for a rank can be told nothing else."""
        store.set(f"come/{self.rank}", b"")
        for rank in range(self.size):
            left_s = max(_LEAST_NS, deadline_ns - self.clock.now_ns()) / 1e9
            with suppress(DistStoreError):  # time is over: connect() says who is missing
                lives.wait(store, f"come/{rank}", left_s, look)

    # ------------------------------------------------------------------------------- exchanges

    def exchange(self, header: OpHeader, mine: bytes) -> list[bytes]:
        """Bring bytes, as many as all others do; return what each rank brought."""
        sent = np.frombuffer(mine, np.uint8).copy()
        found = np.zeros(len(mine) * self.size, np.uint8)
        self.move(header, Kind.ALL_GATHER, [sent], [found], Dtype.uint8)
        return [found[i : i + len(mine)].tobytes() for i in range(0, len(found), max(1, len(mine)))]

    def gate(self, header: OpHeader) -> None:
        """Wait until all ranks are here."""
        plan = self._plan(header, ("gate",), [_GATE], [], [], Dtype.uint8, 0)
        self._run(header, plan, (), ())

    def move(
        self,
        header: OpHeader,
        kind: Kind,
        inputs: Sequence[Bytes],
        outputs: Sequence[Bytes],
        dtype: Dtype,
        op_code: int = 0,
    ) -> None:
        """Carry out an op of this kind on memory of the host; `outputs` is `inputs`: in place."""
        size = self.size
        views_in = tuple([View(x, True) for x in inputs])
        views_out = views_in
        if outputs is not inputs:
            views_out = tuple([View(x, True) for x in outputs])
        in_cuts = cut_blocks(views_in, None, size, is_input_cut(kind))
        out_cuts = cut_blocks(views_out, None, size, is_output_cut(kind))
        key = (kind, header.call.root, op_code, dtype, tuple(in_cuts), tuple(out_cuts))
        plan = self._plans.get((header.fingerprint, *key))
        if plan is None:
            made = compiling.plan_for(
                Call(kind, (), (), root=header.call.root), dtype, in_cuts, out_cuts,
                self.rank, size, self._topology,
            )  # fmt: skip
            steps = [compiling.step_tuple(step) for step in made.steps]
            plan = self._plan(header, key, steps, in_cuts, out_cuts, dtype, op_code)
        self._run(header, plan, views_in, views_out)

    def _plan(
        self,
        header: OpHeader,
        key: tuple[object, ...],
        steps: list[compiling.StepTuple],
        in_cuts: list[Cut],
        out_cuts: list[Cut],
        dtype: Dtype,
        op_code: int,
    ) -> Plan:
        call = header.call
        whole_key = (header.fingerprint, *key)
        plan = self._plans.get(whole_key)
        if plan is None:
            plan = Plan(
                steps, in_cuts, out_cuts, op_code, int(dtype), header.fingerprint, self.size,
                self._topology.slot_nbytes, header.words,
                Form(b"{}", call.name or call.kind.label, int(call.kind), 0, 0),
                call.part is not None and call.part.place > 0,
                call.kind is not Kind.BROADCAST or call.root == self.rank,
            )  # fmt: skip
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[whole_key] = plan
        return plan

    def _run(self, header: OpHeader, plan: Plan, inputs: Any, outputs: Any) -> None:
        recorder = self._world.recorder
        if recorder is not None and recorder.comm != self._recorder.comm:
            self._recorder.set_comm(recorder.comm)
        call = header.call
        left_ns = max(_LEAST_NS, header.deadline_ns - self.clock.now_ns())
        code = int(call.kind) | (call.root + 1) << 16
        try:
            self._group.run(code, inputs, outputs, left_ns, call, lambda *_: plan, -1)
        except NativeError as error:
            self._fail(header, error)
        tell, header.on_start = header.on_start, None
        if tell is not None:
            tell()

    # ------------------------------------------------------------------------------- the rest

    def call_site(self) -> str:
        """The line that called, outside of this package."""
        return self._recorder.call_site(MAX_WORDS)

    def look(self, header: OpHeader) -> None:
        """Raise what means that the op cannot end, while the device has it."""
        self._group.look()
        if self._group.cause() is not None or self._is_one_dead():
            self.gate(header)  # which raises why no op can end any more
        now_ns = self.clock.now_ns()
        if now_ns >= header.deadline_ns:
            call = header.call
            waited_s = (now_ns - header.started_ns) / 1e9
            what = f"{call.name or call.kind.label} #{header.seq} on group '{self.name}'"
            late = OpTimeout(
                f"{what} did not end within {duration_text(waited_s)}: the GPU is not done",
                kind=call.kind.label,
                seq=header.seq,
                group=self.name,
                arrived=self.names,
                waited_s=waited_s,
            )
            self.abort(late.what)
            raise late

    def _is_one_dead(self) -> bool:
        return any(
            life.watched is not None and life.watched.is_dead()
            for rank, life in enumerate(self._members)
            if rank != self.rank
        )

    def set_level(self, level: int) -> None:
        """At 0 (OFF) nothing is compared."""
        self._group.set_level(
            2 if level > 0 else 0
        )  # who meets waits for all: there is nothing else

    def leave_because(self, why: str, at_once: bool) -> None:
        """Say why this rank is about to leave."""
        self._group.leave_because(why, at_once)

    def abort(self, reason: str) -> None:
        """Break it on all ranks."""
        self._group.abort(reason[:200])

    def close(self) -> None:
        """Leave it; idempotent."""
        self._group.close()
        self._between.close()

    def _fail(self, header: OpHeader, error: NativeError) -> NoReturn:
        error.seq = header.seq  # native code counts exchanges
        public = to_public(
            error,
            header.call,
            group=self._group,
            name=self.name,
            rank=self.rank,
            global_ranks=self.names,
            waited_s=(self.clock.now_ns() - header.started_ns) / 1e9,
            where=self._where,
            doing=self._doing,
            host=self._between.host_name,
        )
        self._tell_more(public)
        raise public from error


def not_all_came(
    error: RendezvousError, call: Call, group: ProcessGroup, waited_s: float
) -> OpTimeout:
    """What the first op is told when not all ranks have come to it."""
    missing = [group.ranks[rank] for rank in error.missing]
    return OpTimeout(
        f"{call.name or call.kind.label} #1 on group '{group.label}' waited {duration_text(waited_s)}: "
        f"of {group.size()} ranks {len(missing)} did not reach it with arrays on a GPU",
        kind=call.kind.label,
        seq=1,
        group=group.label,
        missing=missing,
        arrived=[rank for rank in group.ranks if rank not in missing],
        waited_s=waited_s,
        hint="give arrays on a GPU on all ranks, or on none",
    )
