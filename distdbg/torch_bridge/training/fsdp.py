"""The patches of FSDP2: its all_gathers and reduce_scatters are named by the module they serve."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.runtime.parallel.reducer.names import unit_name
from distdbg.torch_bridge.training.naming import named

#: Where FSDP2 is, in torch 2.6 and newer, and before.
_MODULES = (
    "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "torch.distributed._composable.fsdp._fsdp_param_group",
)
_METHODS = ("unshard", "post_backward")
_MARK = "_distdbg_named"
#: Where a unit keeps its name, with what the name was made of.
_NAME = "_distdbg_name"


def patch_loaded(torch: Any) -> None:
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
