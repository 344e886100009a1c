"""Reducer: gradients in as they come, their averages over all ranks out, while the backward pass runs.

Every rank issues the ops of a pass in one order: its buckets, by their numbers, then the status. A gradient
that is missing is zeros, so no rank ever waits for an op that another one leaves out; the status says that
something was unusual, and only then the ranks exchange names.

The status of a plain pass is one more element of the last bucket, which is on its way by finish() at the
latest. With a comm hook, and where parameters may be unused, it is an op of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from distdbg.errors import CollectiveError, DistError, MismatchError, PeerLost, UsageError
from distdbg.log.log_levels import DebugLevel
from distdbg.log.logs import get_logger
from distdbg.ops.sites import call_site
from distdbg.record.known_marks import STEP
from distdbg.runtime.api.collectives import all_reduce, broadcast
from distdbg.runtime.api.marks import mark, span
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.handles.work import Work
from distdbg.runtime.parallel.reducer.agreement import (
    STATUS,
    Failed,
    is_skipped,
    retell,
    waiting_bucket,
)
from distdbg.runtime.parallel.reducer.arrays import Array, Arrays
from distdbg.runtime.parallel.reducer.bucket import Bucket, make_buckets
from distdbg.runtime.parallel.reducer.buckets import Buckets, Capacity
from distdbg.runtime.parallel.reducer.construction import recorded
from distdbg.runtime.parallel.reducer.counts import Counts
from distdbg.runtime.parallel.reducer.exchange import exchange
from distdbg.runtime.parallel.reducer.hooked import CommHook, Hooked
from distdbg.runtime.parallel.reducer.measures import Measures, PassTimes
from distdbg.runtime.parallel.reducer.parameters import Parameter
from distdbg.runtime.parallel.reducer.partial import Partial
from distdbg.runtime.parallel.reducer.pass_report import PassReport
from distdbg.runtime.parallel.reducer.passes import came_twice, used_by_any
from distdbg.runtime.parallel.reducer.status import ReducerStatus, named

_log = get_logger("parallel")
_ORDER_NAME = "DDP order of buckets"
_now_ns = time.time_ns


class Reducer:
    """The buckets of one model on one rank. Not thread-safe: a pass belongs to one thread."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        values: Sequence[Array],
        arrays: Arrays,
        group: ProcessGroup,
        *,
        capacity: Capacity,
        find_unused: bool = False,
        static_graph: bool = False,
        function: str = "backward",
    ) -> None:
        self.parameters = list(parameters)
        #: What the user calls for a pass, in messages.
        self._function = function
        #: What parameters without a gradient in this pass have from passes that were not reduced.
        self.kept: Callable[[int], Array | None] = lambda index: None
        #: Whether this rank only fills what is left of the pass with zeros; and why it gives it up.
        self._is_shadow = False
        self._given_up = ""
        #: The arrays that the gradients are of.
        self._values = list(values)
        self._arrays = arrays
        self.group = group
        self.capacity = capacity
        self.find_unused = find_unused
        self.is_static = static_graph
        self._hook: Hooked | None = None
        self.measures = Measures()
        self.moments = PassTimes()
        self.buckets: list[Bucket] = []
        self.has_rebuilt = False
        self.passes = 0
        self.counts = Counts()
        self._is_open = False
        self._divisor = float(group.size())
        self._is_ready = bytearray(len(self.parameters))
        self._count = 0
        self._next = 0
        self._in_flight: list[tuple[Bucket, Work | None, Any, span]] = []
        #: The order in which gradients came in the first pass.
        self.order: list[int] = []
        #: With static_graph, after the first pass: who has no gradient here, and who has one anywhere.
        self._lacking: list[int] | None = None
        self._used: list[bool] | None = None
        self._surplus: list[int] = []
        #: How often more than once a parameter gets a gradient in each pass, which a static graph may have.
        self._more: dict[int, int] = {}
        self._to_come: dict[int, int] = {}
        #: Whether a static graph shows in this pass what it has.
        self._is_learning = False
        self.partial = Partial(len(self.parameters))
        self._status = ReducerStatus(group, len(self.parameters))
        may_lack = find_unused and not static_graph
        self._make_buckets(capacity.first_buckets(self.parameters, may_lack))

    def _make_buckets(self, buckets: Buckets) -> None:
        self.buckets = make_buckets(buckets, self.parameters, self._values, self._arrays)
        self._bucket_of: list[Bucket] = [None] * len(self.parameters)  # type: ignore[list-item]
        #: By parameter: the part of its bucket that holds its gradient, after finish() the average.
        self.views: list[Array] = [None] * len(self.parameters)
        for bucket in self.buckets:
            for i, view in zip(bucket.indices, bucket.views, strict=True):
                self._bucket_of[i] = bucket
                self.views[i] = view

    def set_hook(self, state: Any, hook: CommHook) -> None:
        """Reduce buckets by `hook(state, bucket)` from here on. Once, and not within a pass."""
        if self._hook is not None:
            raise UsageError("a comm hook is registered already; there can be one")
        if self._is_open:
            raise UsageError("a comm hook is registered before the backward pass, not within one")
        self._hook = Hooked(state, hook, self.group)

    @property
    def hook_name(self) -> str:
        """The name of the comm hook; '' without one."""
        return "" if self._hook is None else self._hook.name

    @property
    def unused_nbytes(self) -> int:
        """Size of the parameters that no rank used in the last pass."""
        used = self._used or ()
        return sum(
            one.nbytes for one, is_used in zip(self.parameters, used, strict=False) if not is_used
        )

    # ---------------------------------------------------------------------------------- a pass

    def give_up(self, reason: str) -> None:
        """End the pass with zeros for what is left of it: the others wait for its ops, and are told why.

        No error here, where the reason is known; the next pass is one of all ranks again.
        """
        self._given_up = reason
        try:
            self._reduce_rest()
        except MismatchError as error:
            if error.kind != "DDP":
                raise
            _log.warning("%s", str(error))

    def drop(self) -> None:
        """Forget a pass on this rank alone: nobody knows what the others wait for."""
        self._is_open = False
        self._drop_in_flight()

    def rejoin(self, error: MismatchError) -> None:
        """After an op of this rank met a backward pass of the others: end that with them, by zeros."""
        self._is_open = False
        begun = waiting_bucket(error)
        try:
            if begun is not None:
                self._clear_pass(1.0)
                for index in range(len(self.parameters)):
                    self._arrays.clear(self.views[index])
                for bucket in self.buckets:
                    bucket.waits_for = 0
                self._next = begun + 1
                self._drain(range(len(self.parameters)) if self._tells_used else None)
        finally:
            self._end_pass()

    def begin_forward(self) -> None:
        """A forward pass begins whose backward pass reduces."""
        self.check_owed()
        self.counts.forwards += 1
        self.moments = PassTimes(forward_begin_ns=_now_ns())

    def check_owed(self) -> None:
        """UsageError, on all ranks, where backward passes had some gradients and none had the others."""
        error = self.partial.take_error()
        if error is not None:
            raise recorded(self.group, error)

    def begin_backward(self) -> None:
        """The backward pass begins; only for the times."""
        if not self.moments.backward_begin_ns:
            self.moments.backward_begin_ns = _now_ns()

    @property
    def is_open(self) -> bool:
        """Whether gradients came that finish() has not seen."""
        return self._is_open

    def open(self, divisor: float | None = None) -> None:
        """Begin a pass; ready() does it with the first gradient. `divisor`: other than the group's size."""
        if self.passes and not self.has_rebuilt and (self.is_static or not self.find_unused):
            try:
                self._rebuild()  # not by finish(): its caller reads the views
            except CollectiveError:
                self._end_pass()
                raise
        self._is_open = True
        size = self.group.size()
        self._clear_pass(1.0 if self._hook is not None else float(divisor or size))
        for bucket in self.buckets:
            bucket.waits_for = len(bucket.indices)
        for index in self._lacking or ():
            self._take_missing(index)
        self._is_learning = self.is_static and self._lacking is None
        if self._is_learning:
            self._more.clear()
        self._to_come = dict(self._more)

    def _clear_pass(self, divisor: float) -> None:
        self._divisor = divisor
        self._given_up = ""
        if self._hook is not None:
            self._hook.failed = None
        self._is_ready = bytearray(len(self.parameters))
        self._count = self._next = 0
        self._in_flight.clear()
        self._surplus.clear()
        self.partial.lack((), is_first=False)
        if not self.has_rebuilt:
            self.order.clear()  # of a pass that was abandoned before its buckets were rebuilt

    def ready(self, index: int, gradient: Array) -> None:
        """Take a gradient; start the ops of the buckets that are complete by it."""
        if not self._is_open:
            self.open()
        if self._is_ready[index]:
            self._take_again(index, gradient)
            return
        if self._to_come and self._to_come.get(index):
            self._to_come[index] -= 1
            return
        self._is_ready[index] = 1
        self._count += 1
        if not self.passes:
            self.order.append(index)
        self._arrays.put(self.views[index], gradient, self._divisor)
        bucket = self._bucket_of[index]
        bucket.waits_for -= 1
        if not bucket.waits_for and bucket.index == self._next and not self._is_learning:
            try:
                self._start_complete()
            except CollectiveError:
                self._end_pass()
                raise
            if self._has_failed:
                self.finish()

    def _take_again(self, index: int, gradient: Array) -> None:
        if self._is_learning:
            self._more[index] = self._more.get(index, 0) + 1
            self._arrays.put(self.views[index], gradient, self._divisor)
            return
        if self._lacking is not None and index in self._lacking:
            self._surplus.append(index)
            return
        reason = f"{self.parameters[index].name} got its gradient twice in one backward pass"
        self.give_up(reason)
        raise came_twice(reason)

    def _take_missing(self, index: int) -> None:
        """A parameter has no gradient in this pass; it may have one of passes that were not reduced."""
        self._is_ready[index] = 1
        kept = None if self._is_shadow or self._given_up else self.kept(index)
        if kept is None:
            self._arrays.clear(self.views[index])
        else:
            self._arrays.put(self.views[index], kept, self._divisor)
        self._bucket_of[index].waits_for -= 1

    def _start_complete(self) -> None:
        while self._next < len(self.buckets) and not self.buckets[self._next].waits_for:
            if self._has_failed:
                return
            bucket = self.buckets[self._next]
            self._next += 1
            if not self.moments.comm_begin_ns:
                self.moments.comm_begin_ns = _now_ns()
            begun = span(bucket.name)
            begun.__enter__()
            try:
                work, future = named(self.group, bucket.name, partial(self._start, bucket))
            except Exception as error:
                begun.__exit__(None, None, None)
                if self._is_hooks(error):
                    continue
                self._is_open = False
                if isinstance(error, CollectiveError):
                    self._raise_reported(error, bucket.name)
                raise
            self._in_flight.append((bucket, work, future, begun))

    def _start(self, bucket: Bucket) -> tuple[Work | None, Any]:
        if self._hook is None:
            sent = bucket.flat
            if self._is_plain and bucket is self.buckets[-1]:
                sent = bucket.whole
                sent[-1:] = self._is_odd()
            return all_reduce(sent, group=self.group, async_op=True), None
        values = [self._values[i] for i in bucket.indices]
        return None, self._hook.start(bucket, values, bucket is self.buckets[-1])

    @property
    def _has_failed(self) -> bool:
        return self._hook is not None and self._hook.failed is not None

    def _is_hooks(self, error: Exception) -> bool:
        """Whether it is told at the end of the pass, since a comm hook has raised it."""
        if self._hook is None or not self._hook.fails(error):
            return False
        self._given_up = self._hook.reason
        return True

    def finish(self) -> Sequence[bool] | None:
        """Wait until all is reduced: `views` are the averages.

        Returns which parameters had a gradient on any rank; None: all. Raises the same error on every rank
        when a rank lacks a gradient, or ran another number of passes; or what its comm hook raised.
        """
        try:
            used = self._reduce_rest()
        except DistError:
            if self._hook is not None:
                self._hook.raise_failed()
            raise
        if self._hook is not None:
            self._hook.raise_failed()
        return used

    def _reduce_rest(self) -> Sequence[bool] | None:
        self._is_open = False
        self.moments.last_gradient_ns = _now_ns()
        lacking = [i for i, is_ready in enumerate(self._is_ready) if not is_ready]
        for index in lacking:
            self._take_missing(index)
        may_lack = self._tells_used
        is_reported = not (may_lack or self._is_shadow or self._given_up)
        self.partial.lack(lacking if is_reported else (), is_first=self.counts.forwards > 0)
        try:
            self._drain(lacking if may_lack else None)
        except BaseException:
            self._end_pass()
            raise
        self.moments.comm_end_ns = _now_ns()
        forwards = self._end_pass()
        used = owed_error = None
        if self.buckets[-1].whole[-1] if self._is_plain else self._status.is_odd:
            used, owed_error = self._explain(forwards)
        self.partial.end(used, owed_error)
        if not self._given_up:
            if may_lack:
                self._used = self._status.used
            if self.is_static and self._lacking is None:
                self._lacking = lacking
        self.measures.add(self.moments)
        mark(STEP, self.passes)
        if self.measures.is_time_to_say() and level_of(self.group.world) is DebugLevel.DETAIL:
            _log.info("DDP step %d: %s", self.passes, self.measures.line())
        return self._used if self.is_static or may_lack else used

    def _end_pass(self) -> int:
        """It counts on every rank, however it ended; returns how many forward passes it had here."""
        self.passes += 1
        return self.counts.end_pass()

    def _drain(self, lacking: Sequence[int] | None) -> None:
        """Start what is left of the pass, and wait for all of it; `lacking`: where that is told.

        Where a rank has skipped the pass, the others go on to its end as that one does, in rejoin().
        """
        first: tuple[Failed, str] | None = None
        during = self.buckets[0].name
        status: Work | None = None
        try:
            self._start_complete()
            if not self._is_plain and self._hook is None:
                status = self._status.start(self._is_odd(), lacking)
            for bucket, work, future, begun in self._in_flight:
                during = bucket.name
                try:
                    if not self._has_failed:
                        self._wait(bucket, work, future)
                except Exception as error:
                    if isinstance(error, MismatchError) and is_skipped(error):
                        first = first or (error, during)
                    elif not self._is_hooks(error):
                        raise
                finally:
                    begun.__exit__(None, None, None)
            during = STATUS
            if status is not None:
                status.wait()
            elif self._hook is not None:
                self._status.meet(self._is_odd(), lacking)
                if self._hook.failed is not None:
                    self._hook.excuse()
        except (CollectiveError, PeerLost) as error:
            first = first or (error, during)
        finally:
            self._drop_in_flight(status)
        if first is not None:
            self._raise_reported(*first)

    def _raise_reported(self, error: Failed, during: str) -> NoReturn:
        reported = retell(error, self.passes + 1, during, self.counts.uneven)
        if reported is error:
            raise error
        raise reported from error

    @property
    def _tells_used(self) -> bool:
        """Whether parameters may have no gradient in this pass, and the status tells which."""
        return self._lacking is None and (self.find_unused or self.is_static)

    @property
    def _is_plain(self) -> bool:
        """Whether all ranks must have all gradients, and one op for each bucket makes the averages."""
        return self._hook is None and not self.find_unused and not self.is_static

    def _is_odd(self) -> bool:
        """Whether the others have to be told what is in this pass of this rank."""
        is_odd = self.partial.is_odd or self._surplus or self._given_up
        return bool(is_odd or not self.counts.is_usual)

    def _wait(self, bucket: Bucket, work: Work | None, future: Any) -> None:
        if self._hook is None or work is not None:
            assert work is not None  # it is asynchronous
            work.wait()
            return
        # It may start further ops.
        value = named(self.group, bucket.name, partial(self._hook.wait, bucket, future))
        if value is not bucket.flat:
            self._arrays.copy([bucket.flat], [value])

    def _drop_in_flight(self, status: Work | None = None) -> None:
        """What nobody waits for any more, after an error, is not a Work that was forgotten."""
        for work in (status, *(each[1] for each in self._in_flight)):
            started = None if work is None else work.hand_over()
            if started is not None:
                started.end()
        self._in_flight.clear()

    def _explain(self, forwards: int) -> tuple[Sequence[bool] | None, DistError | None]:
        """A rank has seen something unusual: raise the same error on all, or go on where it is none.

        Returns which parameters had a gradient on any rank, None: all; and the error if no pass brings them.
        """
        names = [parameter.name for parameter in self.parameters]
        report = PassReport(
            number=self.passes,
            forwards=forwards,
            missing=tuple(names[i] for i in self.partial.missing),
            surplus=tuple(names[i] for i in self._surplus),
            had=tuple(names[i] for i in self.partial.had),
            awaits_more=self.partial.awaits_more,
            given_up=self._given_up,
            function=self._function,
            site=call_site(),
        )
        everybody, error = exchange(self.group, report, self.counts)
        used = used_by_any(everybody, names)
        return None if all(used) else used, error

    def _rebuild(self) -> None:
        """Make the buckets anew, in the order in which rank 0 got its gradients."""
        rest = [i for i in range(len(self.parameters)) if i not in set(self.order)]
        order = np.array(self.order + rest, np.int32)
        try:
            named(self.group, _ORDER_NAME, partial(broadcast, order, group=self.group, group_src=0))
        except CollectiveError as error:
            self._raise_reported(error, _ORDER_NAME)
        self._make_buckets(self.capacity.buckets(self.parameters, order.tolist()))
        self.has_rebuilt = True
        _log.debug("DDP has ordered its gradients in %d buckets", len(self.buckets))

    def shadow(self, divisor: float | None = None) -> None:
        """Take part in a pass of the others with zeros, when this rank has no batch left."""
        self._is_shadow = True
        try:
            self.open(divisor)
            self.counts.forwards = self.counts.usual_forwards
            self.counts.thrown_away = 0
            self.moments = PassTimes()
            self.finish()
        finally:
            self._is_shadow = False
