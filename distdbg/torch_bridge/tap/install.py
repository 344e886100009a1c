"""Kernels for torch's c10d ops at the dispatch key BackendSelect, and patches for what passes by them.

Every op of a process group goes through torch's dispatcher, whoever calls it: the Python API, DDP's
reducer in C++, functional collectives, compiled code. BackendSelect is the first key that all of them
have. A kernel may raise before anything has started, and hands the op on by `redispatch`.

What the dispatcher does not show, and where it is seen instead
    the reduce op     an opaque object: the methods of ProcessGroup that take one
    the wait          Work.wait
    the end           a future's callback; without one, the wait
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import partial, wraps
from importlib import import_module
from typing import Any

from distdbg.check.logs import get_logger
from distdbg.check.sites import skip_folder
from distdbg.runtime.reduce_op import ReduceOp
from distdbg.runtime.world import use
from distdbg.torch_bridge.tap.backward import Backward
from distdbg.torch_bridge.tap.calls import MAKERS, reduce_op
from distdbg.torch_bridge.tap.groups import TappedGroups, wait_for

#: How often ops are looked after that nobody waits for in Python.
_LOOK_S = 0.1

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

_log = get_logger("torch")


class _Stash(threading.local):
    """The reduce op of the call that this thread is in; None: DDP's own, which sums."""

    op: Any = None


_stash = _Stash()
_real: dict[str, Any] = {}


def real_wait(work: Any, *args: Any) -> Any:
    """Torch's Work.wait."""
    return _real["wait"](work, *args)


def unboxed_work(result: Any) -> Any:
    """The Work in what a c10d op returns; None where there is none."""
    boxed = result[-1] if isinstance(result, tuple) else result
    if boxed is None:
        return None
    try:
        return _real["unbox_work"](boxed)
    except RuntimeError:
        return None  # an op in a block of NCCL's, whose Work comes at the end


class Tap:
    """Installed once in a process; without tapped groups all ops pass."""

    def __init__(self, torch: Any, groups: TappedGroups) -> None:
        self._torch = torch
        self._groups = groups
        self._libraries: list[Any] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._backward = Backward()
        skip_folder(os.path.dirname(os.path.abspath(torch.__file__)))
        skip_folder(threading.__file__)  # of the thread that looks after ops

    def start(self) -> None:
        """Install it, with the first group; idempotent."""
        if self._libraries:
            return
        torch = self._torch
        _real["unbox_work"] = torch.distributed.Work.unbox
        self._patch_wait()
        self._patch_reducing()
        self._patch_backward()
        self._patch_breakpoint()
        self._add_kernels()
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
            is_blocked = self._backward.is_blocked()
            for tapped in self._groups.all():
                try:
                    tapped.look_after(is_blocked)
                except Exception as error:  # noqa: BLE001 - the next look may go well
                    _log.warning("looking after ops of torch failed: %r", error)

    # ------------------------------------------------------------------------------- kernels

    def _add_kernels(self) -> None:
        torch = self._torch
        key = torch._C.DispatchKey.BackendSelect
        library = torch.library.Library("c10d", "IMPL")
        for name, make in MAKERS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is None:
                continue  # not in this version
            op = packet.default
            names = [argument.name for argument in op._schema.arguments]
            kernel = self._kernel(op, names, make, key)
            library.impl(name, kernel, "BackendSelect", with_keyset=True)
        self._libraries.append(library)
        functional = torch.library.Library("_c10d_functional", "IMPL")
        for schema in torch._C._jit_get_all_schemas():
            space, _, name = schema.name.partition("::")
            names = [argument.name for argument in schema.arguments]
            if space != "_c10d_functional" or "reduce_op" not in names or schema.overload_name:
                continue
            op = getattr(torch.ops._c10d_functional, name).default
            functional.impl(
                name, _naming(op, names.index("reduce_op"), key), "BackendSelect", with_keyset=True
            )
        self._libraries.append(functional)

    def _kernel(self, op: Any, names: list[str], make: Any, key: Any) -> Callable[..., Any]:
        unbox = self._torch.distributed.ProcessGroup.unbox
        by_name = self._groups.by_name
        place = names.index("process_group")
        has_reduce_op = "reduce_op" in names
        redispatch = op.redispatch
        defaults = {a.name: a.default_value for a in op._schema.arguments if a.has_default_value()}

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            rest = keys.remove(key)
            tapped = by_name.get(unbox(args[place]).group_name)
            if tapped is None:
                return redispatch(rest, *args, **kwargs)
            given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
            call = make(given, tapped.rank)
            if has_reduce_op:
                op = _stash.op
                call.op = ReduceOp.SUM if op is None else reduce_op(op)
            call.is_async = given.get("async_op", False)
            timeout_ms = given.get("timeout", -1)
            if timeout_ms > 0:
                call.timeout_s = timeout_ms / 1000
            call.start = partial(redispatch, rest, *args, **kwargs)
            return tapped.dispatch(call)

        return kernel

    # ------------------------------------------------------------------------------- patches

    def _patch_wait(self) -> None:
        work_class = self._torch.distributed.Work
        real = _real["wait"] = work_class.wait
        groups = self._groups

        @wraps(real)
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            op = groups.take(self)
            if op is None:
                return real(self, *args, **kwargs)
            if args or kwargs:  # a limit of the caller's own
                ended = real(self, *args, **kwargs)
                op.note_end()
                return ended
            wait_for(op, self)
            return True

        work_class.wait = wait

    def _patch_reducing(self) -> None:
        group_class = self._torch.distributed.ProcessGroup
        for name in _REDUCING:
            real = getattr(group_class, name, None)
            if real is not None:
                setattr(group_class, name, _stashing(real))

    def _patch_backward(self) -> None:
        """An error of gloo that ends a backward pass gives way to what we know better."""
        groups = self._groups
        autograd = self._torch.autograd
        real = getattr(autograd.graph, "_engine_run_backward", None)
        if real is None:
            return

        backward = self._backward

        @wraps(real)
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                with backward:
                    return real(*args, **kwargs)
            except RuntimeError as error:
                better = groups.explain()
                if better is None or better is error:
                    raise
                raise better from error

        for module in (autograd.graph, autograd):
            if getattr(module, "_engine_run_backward", None) is real:
                module._engine_run_backward = _engine_run_backward

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


def _naming(op: Any, place: int, key: Any) -> Callable[..., Any]:
    """A functional collective names its reduce op by a word."""
    redispatch = op.redispatch

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        before = _stash.op
        _stash.op = args[place] if place < len(args) else kwargs.get("reduce_op")
        try:
            return redispatch(keys.remove(key), *args, **kwargs)
        finally:
            _stash.op = before

    return kernel
