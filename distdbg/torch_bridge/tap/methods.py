"""The methods of torch's ProcessGroup that Python calls: its most frequent ops take the short way here.

torch.distributed's functions end in these methods, and so do FSDP and the rest of torch's Python. In there is
torch's dispatcher, whose kernels in Python (install.py) alone cost more than all that is done here; so an
op of this way passes them by: while torch has the call, the dispatch key of our kernels is excluded in this
thread. Nothing else of torch looks at that key in these ops but the counting of changes in place,
which is made up for where gloo copies (`_note_change`).

What a method does not know by its arguments' types, and ops inside of a dispatch mode (tracing, fake
tensors), go the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from distdbg.native import NotedOption, ShortWay, TorchKeys
from distdbg.ops.call import Kind
from distdbg.ops.reduce_op import RedOpType, ReduceOp
from distdbg.torch_bridge.tap.callers import is_async_call
from distdbg.torch_bridge.tap.calls import TapCall
from distdbg.torch_bridge.tap.lane import FastLane, KnownLook
from distdbg.torch_bridge.tap.lane_message import know_message, messages_of

if TYPE_CHECKING:
    from distdbg.torch_bridge.tap.groups import TappedGroups

Method = Callable[..., Any]

#: Torch's numbers are ours.
_OPS: dict[int, ReduceOp] = {kind.code: getattr(ReduceOp, kind.name) for kind in RedOpType}


class ShortMethods:
    """Makes the methods of the short way; `long` is what takes an op that has none."""

    def __init__(self, torch: Any, groups: TappedGroups, key: Any) -> None:
        self._torch = torch
        self._groups = groups
        self._key = key
        c10d = torch._C._distributed_c10d
        self._options = {
            name: getattr(c10d, name)
            for name in ("AllreduceOptions", "BroadcastOptions", "AllgatherOptions",
                         "ReduceScatterOptions", "BarrierOptions")
        }  # fmt: skip
        self._plain = (torch.Tensor, torch.nn.Parameter)

    def install(self) -> None:
        """Replace the methods of torch's class, some of which were replaced for the long way before."""
        owner = self._torch.distributed.ProcessGroup
        makers: dict[str, Callable[[Method, Method], Method]] = {
            "allreduce": self._allreduce,
            "broadcast": self._broadcast,
            "all_gather_single": self._gather("all_gather_into_tensor"),
            "_allgather_base": self._gather("all_gather_into_tensor"),
            "reduce_scatter_single": self._scatter,
            "_reduce_scatter_base": self._scatter,
            "barrier": self._barrier,
            "send": self._message(Kind.SEND),
            "recv": self._message(Kind.RECV),
        }
        for name, make in makers.items():
            real = getattr(owner, name, None)
            if real is not None:
                setattr(owner, name, make(getattr(real, "__wrapped__", real), real))

    # ------------------------------------------------------------------------------- the way

    def _way(self, options: Any) -> ShortWay:
        """What carries ops with these options through torch without our kernels."""
        no_limit = options().timeout
        timeout = _noting(options, "timeout")

        def limit_ns(opts: Any) -> int:
            limit = opts.timeout
            return -1 if limit == no_limit else int(limit.total_seconds() * 1e9)

        return ShortWay(self._key, _async_of(options), timeout, limit_ns)

    def knower(self, name: str, kind: Kind, takes: int) -> Callable[..., KnownLook | None]:
        """What looks at an op for the first time; None: it has no short way."""
        plain = self._plain

        def know(
            lane: FastLane, key: object, tensors: tuple[Any, ...], code: int, root: int = -1
        ) -> KnownLook | None:
            if any(type(x) not in plain or x.layout is not self._torch.strided for x in tensors):
                return None
            op = None if code < 0 else _OPS.get(code)
            if code >= 0 and op is None:
                return None
            ins, outs = (tensors[:1], tensors[-1:]) if takes == 2 else (tensors, tensors)
            word = None if name == kind.label else name

            def make() -> TapCall:
                return TapCall(kind, (), (), op, root, name=word)

            return lane.know(key, TapCall(kind, ins, outs, op, root, name=word), make)

        return know

    # ------------------------------------------------------------------------------- methods

    def _allreduce(self, real: Method, long: Method) -> Method:
        lanes, options = self._groups.lanes, self._options["AllreduceOptions"]
        way = self._way(options)
        go, is_traced, know = way.go, way.is_traced, self.knower("all_reduce", Kind.ALL_REDUCE, 1)
        code_of = _noting(options, "reduceOp").code_of

        @wraps(real)
        def allreduce(self: Any, tensors: Any, opts: Any = None, *more: Any, **named: Any) -> Any:
            lane = lanes.get(self)
            if (
                lane is None
                or type(opts) is not options
                or type(tensors) is not list
                or len(tensors) != 1
                or is_traced()
            ):
                return long(self, tensors, *_given(opts), *more, **named)
            tensor = tensors[0]
            code = code_of(opts)
            try:
                key = ("ar", code, tensor.shape, tensor.dtype, tensor.device, tensor.stride(),
                       type(tensor))  # fmt: skip
            except RuntimeError:
                return long(self, tensors, opts)
            known = lane.find(key) or know(lane, key, (tensor,), code)
            if known is not None:
                work = go(lane, known, opts, real, (self, tensors, opts))
                if work is not NotImplemented:
                    return work
            return long(self, tensors, opts)

        return allreduce

    def _broadcast(self, real: Method, long: Method) -> Method:
        lanes, options = self._groups.lanes, self._options["BroadcastOptions"]
        way = self._way(options)
        go, is_traced, know = way.go, way.is_traced, self.knower("broadcast", Kind.BROADCAST, 1)

        @wraps(real)
        def broadcast(self: Any, tensors: Any, opts: Any = None, *more: Any, **named: Any) -> Any:
            lane = lanes.get(self)
            if (
                lane is None
                or type(opts) is not options
                or type(tensors) is not list
                or len(tensors) != 1
                or is_traced()
            ):
                return long(self, tensors, *_given(opts), *more, **named)
            tensor, root = tensors[0], opts.rootRank
            try:
                key = ("bc", root, tensor.shape, tensor.dtype, tensor.device, tensor.stride(),
                       type(tensor))  # fmt: skip
            except RuntimeError:
                return long(self, tensors, opts)
            known = lane.find(key) or know(lane, key, (tensor,), -1, root)
            if known is not None:
                work = go(lane, known, opts, real, (self, tensors, opts))
                if work is not NotImplemented:
                    return work
            return long(self, tensors, opts)

        return broadcast

    def _gather(self, name: str) -> Callable[[Method, Method], Method]:
        return lambda real, long: self._of_two(
            real, long, name, Kind.ALL_GATHER, "AllgatherOptions"
        )

    def _scatter(self, real: Method, long: Method) -> Method:
        return self._of_two(
            real, long, "reduce_scatter_tensor", Kind.REDUCE_SCATTER, "ReduceScatterOptions"
        )

    def _of_two(self, real: Method, long: Method, name: str, kind: Kind, of_options: str) -> Method:
        """An op from one tensor into another."""
        lanes, options = self._groups.lanes, self._options[of_options]
        way = self._way(options)
        go, is_traced, know = way.go, way.is_traced, self.knower(name, kind, 2)
        reduces = kind is Kind.REDUCE_SCATTER
        code_of = _noting(options, "reduceOp").code_of if reduces else None
        note_change = _note_change(self._torch)

        @wraps(real)
        def method(
            self: Any, output: Any, input: Any, opts: Any = None, *more: Any, **named: Any
        ) -> Any:
            lane = lanes.get(self)
            if lane is None or type(opts) is not options or is_traced():
                return long(self, output, input, *_given(opts), *more, **named)
            code = -1 if code_of is None else code_of(opts)
            try:
                key = (name, code, output.shape, input.shape, input.dtype, input.device,
                       input.stride(), output.dtype, output.device, output.stride(),
                       type(input), type(output))  # fmt: skip
            except RuntimeError:
                return long(self, output, input, opts)
            known = lane.find(key) or know(lane, key, (input, output), code)
            if known is not None:
                work = go(lane, known, opts, real, (self, output, input, opts))
                if work is not NotImplemented:
                    if lane.copies and not reduces:
                        note_change(output)
                    return work
            return long(self, output, input, opts)

        return method

    def _barrier(self, real: Method, long: Method) -> Method:
        lanes, options = self._groups.lanes, self._options["BarrierOptions"]
        way = self._way(options)
        go, is_traced, know = way.go, way.is_traced, self.knower("barrier", Kind.BARRIER, 1)

        @wraps(real)
        def barrier(self: Any, opts: Any = None, *more: Any, **named: Any) -> Any:
            lane = lanes.get(self)
            if lane is None or type(opts) is not options or is_traced():
                return long(self, *_given(opts), *more, **named)
            known = lane.find("barrier") or know(lane, "barrier", (), -1)
            if known is not None:
                work = go(lane, known, opts, real, (self, opts))
                if work is not NotImplemented:
                    return work
            return long(self, opts)

        return barrier

    def _message(self, kind: Kind) -> Callable[[Method, Method], Method]:
        groups, lanes, key_off = self._groups, self._groups.lanes, self._key
        keys = TorchKeys(key_off)
        exclude = self._torch._C._dispatch_tls_set_dispatch_key_excluded
        plain = self._plain

        def make(real: Method, long: Method) -> Method:
            def start(*arguments: Any) -> Any:
                exclude(key_off, True)
                try:
                    return real(*arguments)
                finally:
                    exclude(key_off, False)

            @wraps(real)
            def message(self: Any, tensors: Any, peer: Any, tag: Any) -> Any:
                lane = lanes.get(self)
                if (
                    lane is None
                    or type(tensors) is not list
                    or len(tensors) != 1
                    or type(tensors[0]) not in plain
                    or keys.are_in_use
                ):
                    return long(self, tensors, peer, tag)
                tensor = tensors[0]
                key = (kind, peer, tag, tensor.shape, tensor.dtype, tensor.device, tensor.layout,
                       type(tensor))  # fmt: skip
                known: Any = lane.find(key)
                if known is None:
                    if lane.messages is None:
                        lane.messages = messages_of(lane, key_off)
                    known = know_message(lane, key, kind, tensor, peer, tag)
                if known is not None:
                    work = lane.messages.launch(
                        lane, known, known.look, groups, real, (self, tensors, peer, tag)
                    )
                    if work is not NotImplemented:
                        return work
                call = TapCall(
                    kind,
                    tensors if kind is Kind.SEND else (),
                    () if kind is Kind.SEND else tensors,
                    peer=peer,
                    tag=tag,
                )
                call.is_method = True
                call.start = partial(start, self, tensors, peer, tag)
                return lane.tapped.dispatch(call)

            return message

        return make


def _given(opts: Any) -> tuple[Any, ...]:
    return () if opts is None else (opts,)


def _async_of(options: Any) -> NotedOption | Callable[[Any], bool]:
    """Tells of options whether nobody waits for the op at once."""
    if hasattr(options, "asyncOp"):
        return _noting(options, "asyncOp", is_flag=True)
    return lambda opts: is_async_call()


def _noting(options: Any, name: str, is_flag: bool = False) -> NotedOption:
    """Knows this field of the options that were filled in last; to read it there takes up to 1 us."""
    found = vars(options)[name]
    if type(found) is not NotedOption:
        found = NotedOption(found, is_flag)
        setattr(options, name, found)
    noted: NotedOption = found
    return noted


def _note_change(torch: Any) -> Callable[[Any], None]:
    """Counts that a tensor was changed in place, as torch does where gloo copies into it."""
    note: Callable[[Any], None] = torch.autograd.graph.increment_version
    return note
