"""Applies the patches, once in a process; what cannot be patched is left alone, with a line in the log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from distdbg.log.logs import get_logger
from distdbg.record.known_marks import MESH
from distdbg.runtime.api.marks import mark
from distdbg.runtime.mesh.telling import words_of
from distdbg.runtime.parallel.reducer.names import unit_name
from distdbg.torch_bridge.training.batches import mark_loaded_batches
from distdbg.torch_bridge.training.ddp import DdpPatch
from distdbg.torch_bridge.training.naming import named
from distdbg.torch_bridge.training.passes import TrainingSteps

#: Where FSDP2 is, in torch 2.6 and newer, and before.
_MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "torch.distributed._composable.fsdp._fsdp_param_group",
)
_METHODS = ("unshard", "post_backward")
_MARK = "_distdbg_named"
#: Where a unit keeps its name, with what the name was made of.
_NAME = "_distdbg_name"


_log = get_logger("torch")
_patched: list[TrainingSteps] = []


def patch(torch: Any) -> None:
    """Patch what is loaded of torch; called with each group that is made."""
    if not _patched:
        _patched.append(TrainingSteps())
        _apply(torch, _patched[0])
    _patch_loaded(torch)


def count_phases() -> int:
    """How many phases of this program's training have begun, see Steps.phase; 0: it is not patched."""
    return _patched[0].phase if _patched else 0


def _apply(torch: Any, steps: TrainingSteps) -> None:
    _attempt("the optimizer", partial(_patch_optimizer, steps))
    _attempt("the backward pass", partial(_patch_backward, torch, steps))
    _attempt("DistributedDataParallel", partial(_patch_ddp, torch, steps))
    _attempt("DeviceMesh", _patch_mesh)
    _attempt("the DataLoader", mark_loaded_batches)
    steps.on_imports.append(partial(_patch_loaded, torch))


def _attempt(what: str, apply: Callable[[], None]) -> None:
    try:
        apply()
    except Exception as error:  # noqa: BLE001 - a version of torch that is other inside: no names, but a job
        _log.warning("ops of %s are recorded without names: %r", what, error)


def _patch_optimizer(steps: TrainingSteps) -> None:
    optimizer = sys.modules["torch.optim.optimizer"]
    optimizer.register_optimizer_step_pre_hook(steps.begin_optimizer)
    optimizer.register_optimizer_step_post_hook(steps.end_optimizer)


def _patch_backward(torch: Any, steps: TrainingSteps) -> None:
    autograd = torch.autograd
    real = autograd.graph._engine_run_backward
    wrapped = steps.wrap_backward(real)
    for module in (autograd.graph, autograd):
        if getattr(module, "_engine_run_backward", None) is real:
            module._engine_run_backward = wrapped


def _patch_ddp(torch: Any, steps: TrainingSteps) -> None:
    DdpPatch(steps).apply(torch, sys.modules["torch.nn.parallel.distributed"])


def _patch_mesh() -> None:
    kind = getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)
    if kind is not None:
        patch_mesh(kind)


def _patch_loaded(torch: Any) -> None:
    """Patch it where the program has imported it; idempotent and cheap."""
    for name in _MODULES:
        module = sys.modules.get(name)
        kind = getattr(module, "FSDPParamGroup", None)
        if kind is None or hasattr(kind, _MARK):
            continue
        setattr(kind, _MARK, True)
        for method in _METHODS:
            if hasattr(kind, method):
                setattr(kind, method, _naming(getattr(kind, method), torch))


def _naming(real: Callable[..., Any], torch: Any) -> Callable[..., Any]:
    is_compiling = torch.compiler.is_compiling

    @wraps(real)
    def method(unit: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return real(unit, *args, **kwargs)
        with named(_name_of(unit)):
            return real(unit, *args, **kwargs)

    return method


def _name_of(unit: Any) -> str:
    module = getattr(unit, "_module_fqn", None)  # known from the first forward pass on
    kept = getattr(unit, _NAME, None)
    if kept is not None and kept[0] == module:
        return str(kept[1])
    name = _make_name(unit, module)
    setattr(unit, _NAME, (module, name))
    return name


def _make_name(unit: Any, module: str | None) -> str:
    info = getattr(unit, "mesh_info", None)
    names = getattr(getattr(info, "mesh", None), "mesh_dim_names", None)
    dimension = getattr(info, "shard_mesh_dim", None)
    is_known = names is not None and dimension is not None
    over = str(names[dimension]) if names is not None and is_known else ""
    return unit_name(module, over)


def patch_mesh(kind: Any) -> None:
    """Patch torch's class DeviceMesh."""
    kind.__init__ = _telling(kind.__init__)


def _telling(real: Callable[..., Any]) -> Callable[..., Any]:
    reported: set[str] = set()

    @wraps(real)
    def __init__(mesh: Any, /, *args: Any, **kwargs: Any) -> None:
        real(mesh, *args, **kwargs)
        words = words_of(mesh)
        if words and words not in reported:
            reported.add(words)
            mark(MESH + words)

    return __init__
