"""Applies the patches, once in a process; what cannot be patched is left alone, with a line in the log."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from distdbg.log.logs import get_logger
from distdbg.torch_bridge.training.batches import mark_loaded_batches
from distdbg.torch_bridge.training.ddp import DdpPatch
from distdbg.torch_bridge.training.fsdp import patch_loaded
from distdbg.torch_bridge.training.meshes import patch_mesh
from distdbg.torch_bridge.training.passes import TrainingSteps

_log = get_logger("torch")
_patched: list[TrainingSteps] = []


def patch(torch: Any) -> None:
    """Patch what is loaded of torch; called with each group that is made."""
    if not _patched:
        _patched.append(TrainingSteps())
        _apply(torch, _patched[0])
    patch_loaded(torch)


def count_phases() -> int:
    """How many phases of this program's training have begun, see Steps.phase; 0: it is not patched."""
    return _patched[0].phase if _patched else 0


def _apply(torch: Any, steps: TrainingSteps) -> None:
    _attempt("the optimizer", partial(_patch_optimizer, steps))
    _attempt("the backward pass", partial(_patch_backward, torch, steps))
    _attempt("DistributedDataParallel", partial(_patch_ddp, torch, steps))
    _attempt("DeviceMesh", _patch_mesh)
    _attempt("the DataLoader", mark_loaded_batches)
    steps.on_imports.append(partial(patch_loaded, torch))


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
