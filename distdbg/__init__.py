"""distdbg: torch.distributed's API over NumPy, CuPy and PyTorch arrays, and an answer when a job
goes wrong.

    import distdbg as dist

Importing this imports nothing else: every name below is loaded from its module at first use, so
tools that only read records need no NumPy and no compiled code. Type checkers read __init__.pyi,
which docs/generate.py makes of this file.

    in a rank       runtime     groups, plans, backends, stores; what `dist.` names
                    check       what ranks compare, and how a difference is told
                    ops         what an op is: Call, ReduceOp, dtypes, the seam of engines
                    log         the log, with the rank in each line
                    debugger    breakpoints and prompts
                    torch_bridge    watched jobs of torch, and our backend for torch
                    functional, algorithms    torch's modules of these names
    between         record      the file of a rank: written by the rank, read by all others
                    control     the page of a host: written by others, read by the ranks
                    secure      TLS
                    launch      starts ranks and reports how they ended
    who looks on    agent       one process per host: watches, proves, aborts, serves
                    hosts       between the agents of a job
                    follow      the ranks of a host, seen from outside
                    client      the other end of the agents' API: finds jobs, asks agents
                    diagnose    from records to findings; pure
                    render      findings as text, JSON and pages
                    export      Prometheus, OpenTelemetry, Perfetto, tables
                    view        what is shown of a job, as plain values
                    tui         `distdbg top`
                    cli         the commands
    for tests       testing     ranks and jobs for tests of distributed programs

native/core has the data plane in C++, native/bindings binds it; `native.py` is its only importer.
"""

from __future__ import annotations

import sys
from importlib import import_module

__version__ = "0.1.0"

#: Where each public name lives.
_HOMES: dict[str, tuple[str, ...]] = {
    "distdbg.check.latent": ("LatentWarning",),
    "distdbg.runtime.groups.levels": (
        "get_debug_level", "set_debug_level", "set_debug_level_from_env",
    ),
    "distdbg.log.log_levels": ("DebugLevel",),
    "distdbg.runtime.api.monitored_barrier": ("monitored_barrier",),
    "distdbg.runtime.api.assert_same": ("assert_same",),
    "distdbg.debugger.breakpoint": ("breakpoint",),
    "distdbg.errors": (
        "BufferChangedError", "CollectiveError", "ConfigError", "DebuggerQuit", "DistBackendError",
        "DistError", "DistNetworkError", "DistStoreError", "DivergedError", "InternalError",
        "JobAborted", "MismatchError", "NonFiniteError", "OpTimeout", "PeerLost",
        "QueueEmptyError", "RankLeft", "RecordError", "RendezvousClosedError", "RendezvousError",
        "UsageError",
    ),
    "distdbg.launch.spawn": ("spawn", "start_processes"),
    "distdbg.launch.threads": ("run_threads",),
    "distdbg.record": ("record",),
    "distdbg.runtime.backends.registry": (
        "Backend", "BackendConfig", "DistributedBackendOptions", "get_default_backend_for_device",
        "is_backend_available", "is_gloo_available", "is_mpi_available", "is_nccl_available",
        "is_ucc_available", "is_xccl_available",
    ),
    "distdbg.runtime.backends.nccl.options": ("NcclOptions",),
    "distdbg.runtime.api.coalescing": ("_coalescing_manager",),
    "distdbg.runtime.api.collectives": (
        "_all_gather_base", "_reduce_scatter_base", "all_gather", "all_gather_coalesced",
        "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_reduce_coalesced",
        "all_to_all", "all_to_all_single", "barrier", "broadcast", "gather", "reduce",
        "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
    ),
    "distdbg.runtime.handles.future": ("Future",),
    "distdbg.runtime.api.process_groups": ("GroupMember", "GroupName", "ProcessGroup", "group"),
    "distdbg.runtime.process.destroy": ("destroy_process_group",),
    "distdbg.runtime.process.init": (
        "default_pg_timeout", "init_process_group", "is_available", "is_initialized",
        "is_torchelastic_launched",
    ),
    "distdbg.runtime.api.marks": ("mark", "span"),
    "distdbg.runtime.mesh": ("DeviceMesh", "init_device_mesh"),
    "distdbg.runtime.api.objects": (
        "all_gather_object", "broadcast_object_list", "gather_object", "recv_object_list",
        "scatter_object_list", "send_object_list",
    ),
    "distdbg.runtime.api.options": (
        "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions",
        "BarrierOptions", "BroadcastOptions", "GatherOptions", "ReduceOptions",
        "ReduceScatterOptions", "ScatterOptions",
    ),
    "distdbg.runtime.parallel": (
        "DistributedSampler", "GradientReducer", "Join", "JoinHook", "Joinable", "batches",
    ),
    "distdbg.runtime.parallel.hooks": (
        "BuiltinCommHookType", "DDPCommHookType", "PowerSGDState", "register_ddp_comm_hook",
    ),
    "distdbg.runtime.parallel.reducer.bucket": ("GradBucket",),
    "distdbg.runtime.api.p2p": ("P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"),
    "distdbg.runtime.api.queries": (
        "get_backend", "get_backend_config", "get_global_rank", "get_group_rank",
        "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
        "get_world_size",
    ),
    "distdbg.ops.reduce_op": ("ReduceOp", "make_premul_sum", "reduce_op", "supports_complex"),
    "distdbg.runtime.rendezvous": ("register_rendezvous_handler", "rendezvous"),
    "distdbg.runtime.api.shared_arrays": ("SharedArrays", "empty", "shared_arrays", "zeros"),
    "distdbg.runtime.store": ("FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"),
    "distdbg.runtime.api.subgroups": (
        "new_group", "new_subgroups", "new_subgroups_by_enumeration", "shrink_group",
        "split_group",
    ),
    "distdbg.runtime.handles.work": ("Work", "WorkResult"),
    "distdbg.runtime.process.world": ("record_comm",),
    "distdbg.torch_bridge.data_parallel": ("DistributedDataParallel",),
}  # fmt: skip

#: Modules; torch.distributed and torch have all but `functional` under these names.
_MODULES = ("device_mesh", "distributed_c10d", "functional", "multiprocessing")

_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted(name for name in _HOME_OF if not name.startswith("_"))


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"distdbg.{name}")
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'distdbg' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})


# Where torch came first, its `init_process_group("distdbg")` works from here on; else torch asks for it.
if "torch" in sys.modules:
    import_module("distdbg.torch_bridge")
