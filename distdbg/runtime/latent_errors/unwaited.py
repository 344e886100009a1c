"""Asynchronous ops that nobody has waited for yet: finds leaked Work, and arrays in two ops at once.

Every call that shows the op's end counts as a wait: `wait`, `synchronize` and
`block_current_stream`; `is_completed`, `is_success` and `exception` when they say that it has ended;
`result` and `source_rank`; and asking for a Future, which has callbacks of its own. A later op or barrier
does not count: on other backends it does not prove that earlier ops have ended, and the op's error is lost.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from distdbg.check.latent import (
    CodeLine,
    CodePosition,
    LatentErrors,
    LatentFinding,
    RecordedPlace,
    line_above,
    position_above,
)
from distdbg.check.sample import sample_all
from distdbg.native import BegunOp, View
from distdbg.ops.call import Call, Kind
from distdbg.runtime.handles.waits import has_failed
from distdbg.runtime.latent_errors.blocking import BlockingOp, OpGroup

#: Ops in flight whose arrays are compared; with more, those begun first are left out.
_MAX_PLACED: Final = 4096
#: Ops in flight that a blocking op is compared with.
_MAX_BEFORE: Final = 64
#: Inputs of one op: lists that are longer are left out.
_MAX_SAMPLED: Final = 8
_OVER: Final = Call(Kind.BARRIER, (), ())

#: begin, a number that is used once, end, whether the op writes to it, the op.
Range = tuple[int, int, int, bool, "StartedOp"]


class StartedOp:
    """One op from its start until somebody has waited for it."""

    # Made at every asynchronous op: what is seldom needed is an attribute of the class until then.
    __slots__ = ("__dict__", "call", "group", "pending", "site", "unwaited", "views")

    position: CodePosition | None = None
    #: Whether it was waited for, or told.
    is_over = False
    is_placed = False
    #: What the program has of it.
    handle = "Work"
    #: Whether another op was given the same memory meanwhile.
    is_shared = False
    #: Whether a wait for another one has raised meanwhile.
    is_excused = False
    #: Inputs that the op only reads.
    read: tuple[Any, ...] = ()
    #: Of them; None: there are none, or they are not looked at.
    sampled: int | None = None
    #: Of the next collective on the group, right after this one was started; 0: of a message.
    seq = 0
    #: The parts of one handle for several ops.
    parts: Sequence[StartedOp] = ()

    def __init__(
        self,
        unwaited: UnwaitedOps,
        group: OpGroup,
        call: Call,
        pending: Any,
        site: int,
        views: Sequence[View],
        position: CodePosition | None = None,
    ) -> None:
        """`site` is where the record has it started, `position` the same where it has not; see `place`.

        `views`: native ones of inputs, then outputs; () where the backend is not ours. The pending op drops
        its own when its end is noticed, which is before anybody has waited.
        """
        self.unwaited = unwaited
        self.group: OpGroup | None = group
        self.call = call
        self.site = site
        if position is not None:
            self.position = position
        self.pending = pending
        self.views = views
        inputs = call.inputs
        if inputs is call.outputs:
            return
        if 0 < len(inputs) <= _MAX_SAMPLED and is_only_read(call):
            # A list of its own: the program may put other arrays into its list meanwhile.
            self.read = tuple(inputs)
            self.sampled = sample_all(self.read)
            if call.kind < Kind.SEND:
                self.seq = _next_seq(group, call)
                if self.seq < 0:
                    self.sampled = None

    @property
    def place(self) -> CodeLine | RecordedPlace | None:
        """Where it was started."""
        if self.position is not None:
            return CodeLine(*self.position)
        return self.unwaited.latent.recorded_place(self.site)

    @property
    def name(self) -> str:
        """'all_gather_into_tensor on group 'world''."""
        label = "" if self.group is None else self.group.label
        return f"{self.label} on group '{label}'"

    @property
    def label(self) -> str:
        """The function, as far as it is known."""
        return self.call.name or self.call.kind.label

    def waited(self) -> None:
        """Somebody has waited for it: until then its arrays must have stayed as they were."""
        how_changed = getattr(self.pending, "how_changed", "")
        if how_changed:
            self.unwaited.tell_written(self, how_changed)
        if self.sampled is not None or self.parts:
            for started in self.parts:
                if how_changed := getattr(started.pending, "how_changed", ""):
                    self.unwaited.tell_written(started, how_changed)
            for started in (self, *self.parts):
                before = started.sampled
                if before is not None and before != sample_all(started.read):
                    self.unwaited.tell_changed(started)
        # Most often it was alone: then nobody refers to it from here on, and nothing has to be taken back.
        # What another thread appends at this moment may be lost, and is not watched.
        mine = self.unwaited.in_flight
        if len(mine) == 1 and mine[0] is self and not (self.is_placed or self.parts):
            mine.pop()
        else:
            self.end()

    def failed(self) -> None:
        """A wait for it has raised: the Work of others in flight that is dropped then is a consequence."""
        self.unwaited.unfold()
        for other in self.unwaited.going():
            other.is_excused = True
        self.end()

    def end(self) -> None:
        """Nothing is to be told of it any more; its arrays are the program's again."""
        self.is_over = True
        if self.parts:
            for part in self.parts:
                part.end()
        if self.read:
            self.read = ()
        self.views = ()
        self.group = self.pending = None
        self.call = _OVER

    def drop(self) -> None:
        """Its Work is gone, so nobody can wait for it any more."""
        if not self.is_over:
            self.is_over = True
            self.unwaited.tell_dropped(self)
            self.end()

    def ranges(self) -> Iterator[tuple[int, int, bool]]:
        """The memory that the op reads or writes: begin, end, whether it writes."""
        call, views, group = self.call, self.views, self.group
        if call.inputs is call.outputs:
            # The root of a broadcast only reads.
            reads = call.kind is Kind.BROADCAST and group is not None and group.rank() == call.root
            views, input_count = views[: len(call.outputs)], len(views) if reads else 0
        else:
            input_count = len(call.inputs)
        for at, view in enumerate(views):
            if view.nbytes and not view.is_stand_in:
                yield view.address, view.address + view.nbytes, at >= input_count


class UnwaitedOps:
    """The ops of one rank for which nobody has waited yet."""

    def __init__(self, latent: LatentErrors) -> None:
        self.latent = latent
        #: Of the thread: a signal handler may leave its groups in the middle of a call.
        self._lock = threading.RLock()
        #: The list itself is never replaced. It has ops that are over, too; if empty, none is in flight. What
        #: native code puts there is alone in it.
        self.in_flight: list[StartedOp | BegunOp] = []
        self._sweep_at = 64
        self._ranges: list[Range] = []
        self._count = 0

    def unfold(self) -> None:
        """Have what native code has put there as one of ours; another thread may put there the next."""
        mine = self.in_flight
        if mine and type(mine[0]) is BegunOp:
            mine[0].unfold()

    def going(self, most: int = 0) -> list[StartedOp]:
        """Those that are not over, of the last so many; 0: of all."""
        mine = self.in_flight[-most:]
        return [each for each in mine if type(each) is StartedOp and not each.is_over]

    def start(
        self,
        group: OpGroup,
        call: Call,
        pending: Any,
        site: int = 0,
        views: Sequence[View] | None = None,
    ) -> StartedOp:
        """An op was started by the line above the package. `site`, `views`: of a StartedOp, if known."""
        # Walking up the frames costs more than the rest; our own engine has done so for the record.
        if views is None:
            handle = getattr(pending, "handle", None)
            site = 0 if handle is None else handle.site
            views = getattr(pending, "views", ())
        self.unfold()
        started = StartedOp(self, group, call, pending, site, views)
        if not site:
            started.position = position_above(3)
        mine = self.in_flight
        # Most often the op before is over, and there is nothing to compare. What another thread appends at
        # this moment may be lost, and is not watched.
        if not mine:
            mine.append(started)
            return started
        other = None
        with self._lock:
            while mine and mine[-1].is_over:
                mine.pop()
            mine.append(started)
            if len(mine) >= self._sweep_at:
                mine[:] = [each for each in mine if not each.is_over]
                self._sweep_at = 2 * len(mine) + 64
            if started.views and len(mine) > 1:
                other = self._find_shared(started)
        if other is not None:
            self._tell_shared(other, started)
        return started

    def block(self, group: OpGroup, call: Call) -> None:
        """A blocking op begins: its arrays must not be those of an op in flight either."""
        self.unfold()
        mine = self.in_flight
        if not mine:
            return
        with self._lock:
            while mine and mine[-1].is_over:
                mine.pop()
            before = self.going(_MAX_BEFORE)
            if call.kind < Kind.SEND and all(
                each.group is group and each.call.kind < Kind.SEND for each in before
            ):
                return  # they run in order, and addresses cost more than the op
            new = BlockingOp(group, call)
            for each in before:
                if not each.is_placed:
                    self._place(each)
            other = None
            for begin, end, writes in new.ranges():
                other = other or self._find(begin, end, writes, new)
        if other is not None:
            self._tell_shared(other, StartedOp(self, group, call, None, 0, (), position_above(3)))

    def bundle(
        self, group: OpGroup, call: Call, pending: Any, parts: Sequence[StartedOp]
    ) -> StartedOp:
        """One handle for several ops that were started: who waits for it waits for all of them."""
        whole = StartedOp(self, group, call, pending, parts[0].site, (), parts[0].position)
        whole.parts = parts
        with self._lock:
            self.in_flight.append(whole)
        return whole

    def tell_dropped(self, started: StartedOp) -> None:
        """Warn of a Work that was dropped; silent where that is a consequence of an error."""
        is_excused = started.is_excused or has_failed(started.pending)
        if not self.latent.is_on or sys.is_finalizing() or is_excused:
            return
        self._tell(
            "LeakedWork",
            started,
            f"the {started.handle} of {started.name} was dropped, and nobody waited for it",
            [(f"dropped its {started.handle}", line_above(3))],
            f"keep the {started.handle} and call wait() on it",
        )

    def tell_changed(self, started: StartedOp) -> None:
        """Warn of an input that is not what it was when the op was started."""
        if not self.latent.is_on or started.is_shared or has_failed(started.pending):
            return  # another op in flight has the array too, which is legal, or told
        group = started.group
        if started.seq and group is not None and _next_seq(group, started.call) != started.seq:
            return  # a later op of the group may have written it, and those run in order
        self._tell(
            "BufferRace",
            started,
            f"the input of {started.name} was changed between its start and the wait for it",
            [("waited for it", line_above(4))],
            "change the array after wait(), or send a copy",
        )

    def tell_written(self, started: StartedOp, how: str) -> None:
        """Warn of an array that the program wrote to while the op reduced into it, or received."""
        if not self.latent.is_on or started.is_shared:
            return
        lost = (
            "what was written may be part of the result"
            if how == "early"
            else "the result was changed"
        )
        self._tell(
            "BufferRace",
            started,
            f"an array of {started.name} was written to between its start and the wait for it: {lost}",
            [("waited for it", line_above(4))],
            "write to the array after wait(), or give the op a copy",
        )

    def close(self, place: CodeLine | None, how: str) -> None:
        """The rank leaves its groups: whatever nobody has waited for is leaked."""
        self.unfold()
        with self._lock:
            left = self.going()
            self.in_flight.clear()
            self._ranges.clear()
        parts = {id(part) for each in left for part in each.parts}
        for started in left:
            started.is_over = True
            is_excused = started.is_excused or has_failed(started.pending)
            if id(started) in parts or not self.latent.is_on or is_excused:
                continue  # of a bundle the whole is told
            self._tell(
                "LeakedWork",
                started,
                f"nobody waited for {started.name}",
                [(how, place)] if place is not None else [],
                f"call wait() on its {started.handle} before the rank leaves",
            )

    def excuse(self, group: OpGroup) -> None:
        """The collectives of a group have all ended, and an error ended who would have waited."""
        self.unfold()
        with self._lock:
            for each in self.going():
                if each.group is group and each.call.kind < Kind.SEND:
                    each.end()

    def forget(self) -> None:
        """The rank ends by an error: nothing more is told."""
        self.unfold()
        self.in_flight.clear()
        self._ranges.clear()

    def _find_shared(self, new: StartedOp) -> StartedOp | None:
        """An op in flight that shares bytes with a new one, where one of the two writes them."""
        if len(self._ranges) >= _MAX_PLACED:
            self._ranges = [each for each in self._ranges if not each[4].is_over]
            del self._ranges[: -_MAX_PLACED // 2]
        # An op that is alone in flight is placed when a second one comes.
        for each in self.in_flight[-2:-1]:
            if type(each) is StartedOp and not each.is_placed:
                self._place(each)
        other = None
        for begin, end, writes in new.ranges():
            other = other or self._find(begin, end, writes, new)
        self._place(new)
        return other

    def _place(self, started: StartedOp) -> None:
        started.is_placed = True
        for begin, end, writes in started.ranges():
            self._count += 1
            insort(self._ranges, (begin, self._count, end, writes, started))

    def _find(
        self, begin: int, end: int, writes: bool, new: StartedOp | BlockingOp
    ) -> StartedOp | None:
        """Looks at neighbours only: nested reads may hide one, and none is found that is not there."""
        ranges = self._ranges
        at = bisect_left(ranges, (begin,))
        low = at
        while low > 0 and at - low < 4:
            low -= 1
            if ranges[low][2] > begin and _is_race(ranges[low], writes, new):
                return ranges[low][4]
        while at < len(ranges) and ranges[at][0] < end:
            if _is_race(ranges[at], writes, new):
                return ranges[at][4]
            if ranges[at][4].is_over:
                del ranges[at]
            else:
                at += 1
        return None

    def _tell_shared(self, old: StartedOp, new: StartedOp) -> None:
        if self.latent.is_on:
            self._tell(
                "BufferRace",
                new,
                f"{new.name} shares memory with {old.name}, which is in flight, and one of them "
                f"writes to it",
                [(f"had started {old.label}", old.place)],
                f"wait for the {old.label} first, or give each op its own array",
                begun=f"started {new.label}",
            )

    def _tell(
        self,
        type_: str,
        started: StartedOp,
        what: str,
        others: Sequence[tuple[str, CodeLine | RecordedPlace | None]],
        hint: str,
        begun: str = "started it",
    ) -> None:
        group = started.group
        self.latent.report(
            LatentFinding(
                type=type_,
                kind=started.label,
                group="" if group is None else group.label,
                what=what,
                begun=begun,
                place=started.place,
                others=others,
                hint=hint,
                record_group=0 if group is None else group.record_number,
            )
        )


def is_only_read(call: Call) -> bool:
    """Whether the op writes nothing to its inputs: not in place, nor into a part of one."""
    return not any(
        each is source
        or (type(each) is type(source) is np.ndarray and np.may_share_memory(each, source))
        for source in call.inputs
        for each in call.outputs
    )


def _next_seq(group: OpGroup, call: Call) -> int:
    """-1: the engine does not know."""
    ask = getattr(group.engine, "next_seq", None)
    return -1 if ask is None else int(ask(call))


def _is_race(there: Range, writes: bool, new: StartedOp | BlockingOp) -> bool:
    old = there[4]
    if old is new or old.is_over or not (writes or there[3]):
        return False
    old.is_shared = new.is_shared = True
    # The collectives of a group run in order, so one array in two of them is well defined.
    return not (old.group is new.group and old.call.kind < Kind.SEND > new.call.kind)
