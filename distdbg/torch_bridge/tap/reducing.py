"""The group that DDP's reducer is given: one of Python's in front of the program's own.

The reducer starts its ops in C++. Where all other ops of C++ are seen, in torch's dispatcher, an op is made
of Python objects, and these are taken apart again, in caches that a training step has just emptied. A group
that is a subclass in Python is called directly: its all_reduce is native code of ours (`ReducerOp` in
native/bindings/reducer_py.cpp), which gives a bucket in the short way to the backend of the program's group.
That is past torch's dispatcher, a fifth of what an op costs there; where a profiler or an observer of torch's
looks on, or tensors are not a CPU's, it gives it to the group, past our kernels alone. What is not the
expected bucket goes the way of all ops.

Nobody but the reducer gets this group, and it has the backend of the other one: what C++ asks it besides is
answered by that. No method of it is Python's that runs while a model is compiled: torch would compile it too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from distdbg.native import KnownBucket, ReducerOp
from distdbg.ops.call import Kind
from distdbg.torch_bridge.tap.methods import ShortMethods
from distdbg.torch_bridge.training.ddp import armed, reducing

if TYPE_CHECKING:
    from distdbg.torch_bridge.tap.groups import TappedGroups
    from distdbg.torch_bridge.tap.lane import FastLane
    from distdbg.torch_bridge.training.ddp_model import Model

_SUM = 0


def group_maker(torch: Any, groups: TappedGroups, key: Any) -> Callable[[Any], Any]:
    """Makes the group that a reducer is given, of the program's; itself where that has no short way."""
    kind: Any = torch.distributed.ProcessGroup
    lanes = groups.lanes
    know = ShortMethods(torch, groups, key).knower("all_reduce", Kind.ALL_REDUCE, 1)
    all_reduce, broadcast = _unpatched(kind.allreduce), _unpatched(kind.broadcast)

    profiler, observers = vars(torch.autograd.profiler), _note_observers(torch)

    def learn(model: Model, lane: FastLane, tensor: Any) -> KnownBucket | None:
        """Fill in what is known of the bucket that a model expects; None: this tensor is not that."""
        bucket, numel = model.expects, tensor.numel()
        if bucket is None:
            return None
        if bucket.numel != numel or tensor.dim() != 1 or tensor.layout is not torch.strided:
            return None
        look = (bucket.comm, numel, tensor.dtype, tensor.device)
        known = lane.find(look) or know(lane, look, (tensor,), _SUM)
        if known is None:
            return None
        is_on_cpu = tensor.device.type == "cpu"
        known_bucket = bucket.known = KnownBucket(
            lane, known, tensor.dtype, numel, bucket.comm, bucket.is_first, is_on_cpu
        )
        return known_bucket

    def long_way(model: Model | None, theirs: Any, tensors: Any, options: Any) -> Any:
        before, reducing.model = reducing.model, model
        try:
            return all_reduce(theirs, tensors, options)
        finally:
            reducing.model = before

    class ReducerGroup(kind):
        """See above."""

        def __init__(self, theirs: Any) -> None:
            super().__init__(theirs.rank(), theirs.size())
            for device in theirs._device_types:
                self._register_backend(device, kind.BackendType.GLOO, theirs._get_backend(device))
            self._set_default_backend(kind.BackendType.GLOO)
            self._name, self._desc = theirs.group_name, theirs.group_desc
            below = theirs._get_backend(torch.device("cpu")).allreduce
            self.allreduce = ReducerOp(
                theirs, lanes, armed, learn, all_reduce, below, long_way, profiler, observers, key
            )
            self.broadcast = partial(broadcast, theirs)

        def tell_model(self, model: Model) -> None:
            self.allreduce.model = model
            model.is_reported = True

        def getGroupName(self) -> str:
            return str(self._name)

        def getGroupDesc(self) -> str:
            return str(self._desc)

    def make(group: Any) -> Any:
        is_shown = groups.ranges is not None  # to a profiler, by what wraps all ops
        if is_shown or group not in lanes or group.name() != "gloo":
            return group
        if not any(torch.device(each).type == "cpu" for each in group._device_types):
            return group
        return ReducerGroup(group)

    return make


def _note_observers(torch: Any) -> list[str]:
    """Of torch's ops, which its profiler's own flag does not tell; filled as they start."""
    found = ["a daemon of Kineto's"] if os.environ.get("KINETO_USE_DAEMON") else []
    kind = getattr(torch.profiler, "ExecutionTraceObserver", None)
    if kind is None:
        return found
    real = kind.start

    @wraps(real)
    def start(self: Any) -> Any:
        found.append("an execution trace")
        return real(self)

    kind.start = start
    return found


def _unpatched(method: Any) -> Any:
    while hasattr(method, "__wrapped__"):
        method = method.__wrapped__
    return method
