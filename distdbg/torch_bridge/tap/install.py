"""Kernels for torch's c10d ops at the dispatch key ADInplaceOrView, and patches for what passes by them.

Every op of a process group goes through torch's dispatcher, whoever calls it: the Python API, DDP's
reducer in C++, functional collectives, compiled code. All of them have this key, but those in inference mode:
there it is included for the C++ that torch's Python calls (`_seen_in_inference`). A kernel may raise before
anything has started, and hands the op on by `redispatch`. A kernel in Python costs more than all that
it does, so the ops that Python calls most pass it by (methods.py).

What the dispatcher does not show, and where it is seen instead
    the reduce op     an opaque object: the methods of ProcessGroup that take one
    the wait          Work.wait
    the end           a future's callback; without one, the wait
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial, wraps
from importlib import import_module
from typing import Any

from distdbg.log.logs import get_logger
from distdbg.ops.call import Kind
from distdbg.ops.reduce_op import ReduceOp
from distdbg.ops.sites import skip_folder
from distdbg.runtime.process.world import use
from distdbg.torch_bridge.tap.callers import is_async_call
from distdbg.torch_bridge.tap.calls import MAKERS, WORD_CODES, TapCall, reduce_op
from distdbg.torch_bridge.tap.groups import TappedGroup, TappedGroups
from distdbg.torch_bridge.tap.in_flight import InFlight
from distdbg.torch_bridge.tap.lane import LaneOp
from distdbg.torch_bridge.tap.lane_message import LaneMessage
from distdbg.torch_bridge.tap.methods import ShortMethods
from distdbg.torch_bridge.tap.no_member import note_calls_of_no_member
from distdbg.torch_bridge.tap.nvtx import Ranges, find_nvtx
from distdbg.torch_bridge.tap.queued import note_blocks_and_aborts
from distdbg.torch_bridge.tap.reducing import group_maker
from distdbg.torch_bridge.tap.torch_functions import keep_torchs_own
from distdbg.torch_bridge.tap.waits_inside import WaitsInside
from distdbg.torch_bridge.training.ddp import armed, bucket_of, group_makers

#: How often ops are looked after that nobody waits for in Python.
_LOOK_S = 0.1
_LOOK_NS = 100_000_000
#: How long a wait goes on before the peers are looked at, and its op takes the long way.
_FIRST_SLICE = timedelta(milliseconds=20)

_REDUCING = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
)

_KEY = "ADInplaceOrView"

_log = get_logger("torch")

Prepare = Callable[[TappedGroup, Any, Any, Any], TapCall]


class _Stash(threading.local):
    """The reduce op of the call that this thread is in; None: DDP's own, which sums."""

    op: Any = None


_stash = _Stash()


class Tap:
    """Installed once in a process; without tapped groups all ops pass."""

    def __init__(self, torch: Any, groups: TappedGroups) -> None:
        self._torch = torch
        self._groups = groups
        self._key = getattr(torch._C.DispatchKey, _KEY)
        self._libraries: list[Any] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        #: Whether torch tells its ops if their function waits for them.
        self._are_reported = hasattr(torch.distributed.AllreduceOptions, "asyncOp")
        self._inside = WaitsInside()
        self._waits_for_tensors = False
        skip_folder(os.path.dirname(os.path.abspath(torch.__file__)))
        skip_folder(threading.__file__)  # of the thread that looks after ops

    def start(self) -> None:
        """Install it, with the first group; idempotent."""
        if self._libraries:
            return
        torch = self._torch
        self._groups.unbox_work = torch.distributed.Work.unbox
        work_class = torch.distributed.Work
        keep_torchs_own(work_class.wait, work_class.unbox)
        self._patch_wait(work_class)
        self._groups.work_classes.add(work_class)
        self._groups.on_work_class = self._on_work_class
        self._patch_methods()
        self._patch_backward()
        self._patch_breakpoint()
        note_calls_of_no_member(torch)
        self._add_kernels()
        group_makers.append(group_maker(torch, self._groups, self._key))
        self._thread = threading.Thread(target=self._look, name="distdbg-torch", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Look after nothing any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _look(self) -> None:
        while not self._stopped.wait(_LOOK_S):
            self._look_once()  # a frame of its own: this one would keep the last group

    def _look_once(self) -> None:
        blocked = self._inside.blocked_thread()
        try:
            self._groups.look_after_lanes(_LOOK_NS)
        except Exception as error:  # noqa: BLE001 - the next look may go well
            _log.warning("looking after ops of torch failed: %r", error)
        for tapped in self._groups.all():
            try:
                tapped.look_after(blocked)
            except Exception as error:  # noqa: BLE001 - the next look may go well
                _log.warning("looking after ops of torch failed: %r", error)

    # ------------------------------------------------------------------------------- kernels

    def _add_kernels(self) -> None:
        torch = self._torch
        key = self._key
        library = torch.library.Library("c10d", "IMPL")
        for name, make in MAKERS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is None:
                continue  # not in this version
            op = packet.default
            names = [argument.name for argument in op._schema.arguments]
            prepare = self._preparing(op, names, make, key)
            kernel = self._kernel(op, names, prepare, key)
            if name == "allreduce_":
                kernel = self._all_reduce_kernel(op, names, kernel, prepare, key)
            library.impl(name, kernel, _KEY, with_keyset=True)
        self._libraries.append(library)
        functional = torch.library.Library("_c10d_functional", "IMPL")
        for full_name in torch._C._dispatch_get_all_op_names():
            space, _, name = full_name.partition("::")
            if space != "_c10d_functional" or "." in name:
                continue
            op = getattr(torch.ops._c10d_functional, name).default
            names = [argument.name for argument in op._schema.arguments]
            if "group_name" not in names:
                continue
            place = names.index("reduce_op") if "reduce_op" in names else -1
            kernel = _naming(torch, op, place, key, self._patch_wait_tensor)
            functional.impl(name, kernel, "BackendSelect", with_keyset=True)
        self._libraries.append(functional)

    def _preparing(self, op: Any, names: list[str], make: Any, key: Any) -> Prepare:
        """Makes a Call of the arguments of an op."""
        has_reduce_op = "reduce_op" in names
        are_reported = self._are_reported
        redispatch = op._handle.redispatch_boxed
        defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}

        def prepare(tapped: TappedGroup, keys: Any, args: Any, kwargs: Any) -> TapCall:
            given = {**defaults, **kwargs}
            for at, value in enumerate(args):  # zip: torch 2.9 fails to compile around one
                given[names[at]] = value
            call: TapCall = make(given, tapped.rank)
            if has_reduce_op:
                op = _stash.op
                call.op = ReduceOp.SUM if op is None else reduce_op(op)
            call.is_async = given.get("async_op", False) if are_reported else is_async_call()
            timeout_ms = given.get("timeout", -1)
            if timeout_ms > 0:
                call.timeout_s = timeout_ms / 1000
            call.start = partial(redispatch, keys.remove(key), *args, **kwargs)
            return call

        return prepare

    def _kernel(self, op: Any, names: list[str], prepare: Prepare, key: Any) -> Callable[..., Any]:
        unbox = self._torch.distributed.ProcessGroup.unbox
        by_name = self._groups.by_name
        place = names.index("process_group")
        redispatch = op._handle.redispatch_boxed
        is_traced = self._mode_finder()

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            tapped = by_name.get(unbox(args[place]).group_name)
            if tapped is None or is_traced(keys, args):
                return redispatch(keys.remove(key), *args, **kwargs)
            return tapped.dispatch(prepare(tapped, keys, args, kwargs))

        return kernel

    def _all_reduce_kernel(
        self, op: Any, names: list[str], long: Callable[..., Any], prepare: Prepare, key: Any
    ) -> Callable[..., Any]:
        """The op of DDP, in as few steps as it takes: in a backward pass nothing of us is in a cache."""
        torch, groups = self._torch, self._groups
        unbox, lanes = torch.distributed.ProcessGroup.unbox, groups.lanes
        redispatch, stash, look_closer = op._handle.redispatch_boxed, _stash, 0
        #: The keys of an op without ours.
        below: dict[int, Any] = {}
        for each in ("Functionalize", "Python"):
            look_closer |= torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, each)).raw_repr()
        defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}
        assert names[:2] == ["tensors", "process_group"]
        at_async = names.index("async_op") if "async_op" in names else len(names)
        are_reported = self._are_reported
        at_limit, waits_not = names.index("timeout"), defaults.get("async_op", False)
        know = ShortMethods(torch, groups, key).knower("all_reduce", Kind.ALL_REDUCE, 1)

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            lane = lanes.get(unbox(args[1]))
            tensors, raw = args[0], keys.raw_repr()
            if lane is None or len(tensors) != 1 or kwargs or raw & look_closer:
                return long(keys, *args, **kwargs)
            # None: DDP's own, which sums. A functional collective's is a word, others are objects of torch's.
            op = stash.op
            code = 0 if op is None else WORD_CODES.get(op) if type(op) is str else None
            if code is None:
                return long(keys, *args, **kwargs)
            tensor = tensors[0]
            comm = bucket_of(lane.name, tensor.numel()) if armed and op is None else ""
            look: Any
            if comm and tensor.dim() == 1:  # a bucket, which is known by less
                look = (comm, tensor.numel(), tensor.dtype, tensor.device)
            else:
                try:
                    look = ("ar", code, tensor.shape, tensor.dtype, tensor.device, tensor.stride(),
                            type(tensor))  # fmt: skip
                except RuntimeError:
                    return dispatch_long(lane, comm, keys, args)
            known = lane.find(look) or know(lane, look, (tensor,), code)
            if known is None:
                return dispatch_long(lane, comm, keys, args)
            rest = below.get(raw)
            if rest is None:
                rest = below[raw] = keys.remove(key)
            limit_ms = args[at_limit] if len(args) > at_limit else -1
            is_async = args[at_async] if len(args) > at_async else waits_not
            if not are_reported:
                is_async = is_async_call()
            limit_ns = limit_ms * 1_000_000 if limit_ms > 0 else -1
            result = lane.launch(
                lane, known, is_async, limit_ns, True, comm, redispatch, (rest, *args)
            )
            if result is NotImplemented:
                return dispatch_long(lane, comm, keys, args)
            return result

        def dispatch_long(lane: Any, comm: str, keys: Any, args: tuple[Any, ...]) -> Any:
            return lane.tapped.dispatch(prepare(lane.tapped, keys, args, {}), comm)

        return kernel

    # ------------------------------------------------------------------------------- patches

    def _patch_wait(self, work_class: Any) -> None:
        """Also of subclasses that have a wait of their own, when the first of them is seen."""
        real = work_class.wait
        groups = self._groups
        take_short = groups.lane_ops.pop

        @wraps(real)
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            short = take_short(id(self), None)
            op: InFlight | None
            if short is None or short.work() is not self:
                op = groups.take(self)
            elif type(short) is LaneMessage:
                return short.wait(self, real, args, kwargs)
            elif _ends_shortly(short, self, real, args, kwargs):
                return True
            else:
                op = short.widen(self)
            if op is None:
                return real(self, *args, **kwargs)
            if args or kwargs:  # a limit of the caller's own
                ended = real(self, *args, **kwargs)
                op.note_end()
                return ended
            groups.wait_for(op, self)
            return True

        work_class.wait = wait

    def _on_work_class(self, work_class: type) -> None:
        self._groups.work_classes.add(work_class)
        if "wait" in vars(work_class):
            self._patch_wait(work_class)

    def _patch_methods(self) -> None:
        group_class = self._torch.distributed.ProcessGroup
        for name in _REDUCING:
            real = getattr(group_class, name, None)
            if real is not None:
                setattr(group_class, name, _stashing(real))
        note_blocks_and_aborts(group_class, self._groups.lanes)
        ShortMethods(self._torch, self._groups, self._key).install()
        nvtx = find_nvtx(self._torch)
        if nvtx is not None:
            ranges = self._groups.ranges = Ranges(nvtx)
            ranges.show_spans()
            for name in ("send", "recv"):
                setattr(group_class, name, ranges.around(getattr(group_class, name), name))
        owner = self._torch.distributed.distributed_c10d
        for name in ("_broadcast_coalesced", "_verify_params_across_processes"):
            for module in (owner, self._torch.distributed):
                real = getattr(module, name, None)
                if real is not None:
                    setattr(module, name, _seen_in_inference(self._torch, real, self._key))

    def _mode_finder(self) -> Callable[[Any, tuple[Any, ...]], bool]:
        """Says whether an op is none that runs: torch traces it, or its tensors have no memory."""
        c = self._torch._C
        modes = [getattr(c._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")]

        def is_traced(keys: Any, args: tuple[Any, ...]) -> bool:
            if keys.has(c.DispatchKey.Functionalize):
                return True
            if not keys.has(c.DispatchKey.Python):
                return False
            # Other modes and subclasses of Tensor call the op anew, below our key: so it counts as it comes.
            if any(c._get_dispatch_mode(mode) is not None for mode in modes):
                return True
            given = [x for arg in args for x in (arg if isinstance(arg, list) else (arg,))]
            return any(type(x).__name__ in ("FakeTensor", "FunctionalTensor") for x in given)

        return is_traced

    def _patch_backward(self) -> None:
        autograd = self._torch.autograd
        real = getattr(autograd.graph, "_engine_run_backward", None)
        if real is None:
            return
        watched = self._inside.around(real, self._groups.explain)  # an error of gloo's knows less
        for module in (autograd.graph, autograd):
            if getattr(module, "_engine_run_backward", None) is real:
                module._engine_run_backward = watched

    def _patch_wait_tensor(self) -> None:
        """With the first functional collective: its module takes long to load, and most programs never do."""
        if self._waits_for_tensors:
            return
        self._waits_for_tensors = True
        functional = sys.modules.get("torch.distributed._functional_collectives")
        real = getattr(functional, "wait_tensor", None)
        if functional is None or real is None:
            return
        watched = self._inside.around(real, self._groups.explain)
        is_compiling = self._torch.compiler.is_compiling

        @wraps(real)
        def wait_tensor(tensor: Any) -> Any:
            return real(tensor) if is_compiling() else watched(tensor)

        setattr(functional, "wait_tensor", wait_tensor)  # noqa: B010 - mypy has no such name

    def _patch_breakpoint(self) -> None:
        dist = self._torch.distributed
        real = getattr(dist, "breakpoint", None)
        if real is None:
            return
        groups = self._groups

        @wraps(real)
        def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float = 3600) -> Any:
            tapped = groups.all()
            if not tapped:
                return real(rank, skip, timeout_s)
            # Loaded by its name: a rank that stops nowhere loads no debugger.
            ours = import_module("distdbg.debugger.breakpoint").breakpoint
            with use(tapped[0].group.world):
                return ours(rank, skip, timeout_s)

        dist.breakpoint = breakpoint


def _stashing(real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _stash.op
        _stash.op = _op_among((*args, *kwargs.values()))
        try:
            return real(self, *args, **kwargs)
        finally:
            _stash.op = before

    return method


def _op_among(values: tuple[Any, ...]) -> Any:
    for value in values:
        op = getattr(value, "reduceOp", None)
        if op is not None:
            return op
        if type(value).__name__ in ("ReduceOp", "RedOpType"):
            return value
    return None


def _naming(
    torch: Any, op: Any, place: int, key: Any, on_call: Callable[[], None]
) -> Callable[..., Any]:
    """A functional collective names its reduce op by a word."""
    redispatch = _seen_in_inference(torch, op._handle.redispatch_boxed, key)
    own_key = torch._C.DispatchKey.BackendSelect

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        on_call()
        before = _stash.op
        if place >= 0:
            _stash.op = args[place] if place < len(args) else kwargs.get("reduce_op")
        try:
            return redispatch(keys.remove(own_key), *args, **kwargs)
        finally:
            _stash.op = before

    return kernel


def _seen_in_inference(torch: Any, function: Callable[..., Any], key: Any) -> Callable[..., Any]:
    """Calls C++ whose ops have no key of ours in inference mode."""
    is_inference = torch.is_inference_mode_enabled
    include = torch._C._dispatch_tls_set_dispatch_key_included

    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_inference():
            return function(*args, **kwargs)
        include(key, True)
        try:
            return function(*args, **kwargs)
        finally:
            include(key, False)

    return call


def _ends_shortly(op: LaneOp, work: Any, real: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Wait for an op as long as nobody worries. False: it takes the long way, which knows more."""
    try:
        lane = op.lane
        # Torch says nothing quicker than what it has told already.
        if op.held is True and not (args or kwargs):
            real(work)
        elif work.is_completed():
            real(work, *args, **kwargs)
        elif lane.waits is not None:
            lane.waits[id(op)] = op
            place = lane.recorder.begin_wait(op.op.number, is_limited=bool(args or kwargs))
            try:
                real(work, *args, **kwargs)
            finally:
                lane.recorder.end_wait(place)
                del lane.waits[id(op)]
        elif args or kwargs or not op.known.is_sliced:
            return False
        else:
            place = lane.recorder.begin_wait(op.op.number)
            try:
                real(work, _FIRST_SLICE)
            finally:
                lane.recorder.end_wait(place)
    except RuntimeError:
        return False
    if not lane.ops.end(op.op):
        lane.raise_trouble()
    return True
