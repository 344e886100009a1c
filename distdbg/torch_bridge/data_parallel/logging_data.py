"""What a model and its reducer are, by the names of torch's _get_ddp_logging_data()."""

from __future__ import annotations

import os
from typing import Any

from distdbg.runtime.groups.levels import level_of
from distdbg.runtime.parallel.reducer.reducer import Reducer

#: torch's words for dtypes.
_WORDS = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
}
_VARIABLES = {"MASTER_ADDR": "master_addr", "MASTER_PORT": "master_port"}


def construction_facts(reducer: Reducer, module: Any, options: dict[str, int]) -> dict[str, Any]:
    """What does not change: the lines of `DDP Initialized with`."""
    group = reducer.group
    parameters = reducer.parameters
    dtypes = sorted({parameter.dtype for parameter in parameters})
    return {
        "world_size": group.size(),
        "rank": group.rank(),
        "module_name": type(module).__name__,
        "backend_name": group.name(),
        "device_ids": "",
        "output_device": -1,
        **options,
        "bucket_cap_bytes": reducer.capacity.most,
        "bucket_sizes": _sizes(reducer),
        "dtypes": ", ".join(_WORDS.get(dtype, dtype) for dtype in dtypes),
        "num_parameter_tensors": len(parameters),
        "total_parameter_size_bytes": sum(parameter.nbytes for parameter in parameters),
        "is_multi_device_module": 0,
        "has_sync_bn": 0,
        "iteration": 0,
        "torch_distributed_debug": level_of(group.world).name,
        **{name: os.environ.get(variable, "N/A") for variable, name in _VARIABLES.items()},
    }


def runtime_facts(reducer: Reducer) -> dict[str, Any]:
    """What has happened since."""
    facts: dict[str, Any] = {
        "iteration": reducer.passes,
        "num_buckets_reduced": len(reducer.buckets) if reducer.passes else 0,
        "has_rebuilt_buckets": int(reducer.has_rebuilt),
        "unused_parameter_size": reducer.unused_nbytes,
        "prev_iteration_grad_ready_order_indices": ", ".join(map(str, reducer.order)),
        **reducer.measures.facts(),
    }
    if reducer.has_rebuilt:
        facts["rebuilt_bucket_sizes"] = _sizes(reducer)
        facts["rebuilt_per_bucket_param_indices"] = ", ".join(
            " ".join(map(str, bucket.indices)) for bucket in reducer.buckets
        )
    if reducer.hook_name:
        facts["comm_hook"] = reducer.hook_name
    return facts


def _sizes(reducer: Reducer) -> str:
    return ", ".join(str(bucket.nbytes) for bucket in reducer.buckets)
