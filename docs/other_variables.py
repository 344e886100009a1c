"""The variables of torch, gloo, NCCL and launchers: which are read, and what replaces the others."""

from __future__ import annotations

from collections.abc import Iterator

#: Read, or set for ranks, by distdbg; a test looks for each name in the package.
READ = (
    ("`MASTER_ADDR`, `MASTER_PORT`, `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`",
     "where the ranks of `env://` meet, and who this one is"),
    ("`TORCHELASTIC_RUN_ID`, `TORCHELASTIC_RESTART_COUNT`, `TORCHELASTIC_USE_AGENT_STORE`",
     "torchrun's: its store serves the port already, and each restart is a run of its own; with restarts the "
     "records of each are in a folder `attempt_N` of `DISTDBG_RUN_DIR`"),
    ("`TORCH_DISTRIBUTED_DEBUG`", "the level, where `DISTDBG_DEBUG` is not set; `OFF` lowers logs alone"),
    ("`TORCH_CPP_LOG_LEVEL`", "how loud the log is, where `DISTDBG_LOG_LEVEL` is not set"),
    ("`TORCHELASTIC_ERROR_FILE`", "where a rank writes what ended it, where `DISTDBG_ERROR_FILE` is not set"),
    ("`TORCH_ELASTIC_SHUTDOWN_TIMEOUT`, `TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`",
     "`distdbg run`: as torchrun does"),
    ("`OMP_NUM_THREADS`", "`distdbg run` sets 1 for several ranks where it is not set"),
    ("`PYTHONFAULTHANDLER`", "`distdbg run` sets 1 where it is not set"),
    ("`TORCH_NCCL_ASYNC_ERROR_HANDLING`", "`distdbg run` sets 1 where it is not set; torch reads it"),
    ("`SLURM_PROCID`, `SLURM_NTASKS`, `SLURM_LOCALID`, `PMIX_RANK`, `PMI_RANK`, `OMPI_COMM_WORLD_RANK`, ...",
     "who a rank of srun or mpiexec is: [under a launcher](../how-to/run-under-a-launcher.md)"),
    ("`MPI4PY_MPIABI`, `MPI4PY_LIBMPI`",
     "which MPI library backend `mpi` loads: [over MPI](../how-to/run-over-mpi.md)"),
    ("`OTEL_EXPORTER_OTLP_PROTOCOL`, `OTEL_TRACES_SAMPLER`, ...",
     "where traces go, and how many: [OpenTelemetry](otel.md)"),
    ("`UCX_HANDLE_ERRORS`, `UCX_LOG_FILE`, `UCX_WARN_UNUSED_ENV_VARS`",
     "set while libucp is opened, where they are not: `none`, `stderr`, `n`; libucp reads "
     "[others](../how-to/run-on-several-hosts.md) itself"),
    ("`PYTHONBREAKPOINT`", "0: no breakpoint stops; else the debugger, where `DISTDBG_DEBUGGER` is not set"),
)  # fmt: skip
#: Read by nothing here: a test looks for each name in the package, and must not find it.
IGNORED = (
    ("`TORCH_SHOW_CPP_STACKTRACES`",
     "errors have no C++ part; `DISTDBG_TRACEBACK=full` shows the frames of distdbg"),
    ("`GLOO_DEVICE_TRANSPORT`", "`DISTDBG_TRANSPORT`: shared memory within a host, TCP between hosts"),
    ("`TORCH_GLOO_LAZY_INIT`", "a group connects when it is made: a rank that is missing is named there"),
    ("`NCCL_DEBUG`, `NCCL_SOCKET_IFNAME`, `NCCL_IB_DISABLE`, `NCCL_P2P_DISABLE`, other `NCCL_*`",
     "NCCL reads them in jobs of torch; `distdbg analyze` reads [its log](../how-to/analyze-a-torch-job.md)"),
    ("`TORCH_NCCL_BLOCKING_WAIT`, `NCCL_BLOCKING_WAIT`",
     "a wait blocks the caller, ends with the op's error, and takes Ctrl-C; of arrays on a GPU where "
     "`NcclOptions(is_blocking_wait=True)` says so"),
    ("`TORCH_NCCL_ENABLE_MONITORING`, `TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC`, `TORCH_NCCL_DESYNC_DEBUG`",
     "the agent of each host watches always; limits are timeouts of ops, and `DISTDBG_ABORT_ON`"),
    ("`TORCH_FR_BUFFER_SIZE`, `TORCH_NCCL_TRACE_BUFFER_SIZE`",
     "every run is recorded; `DISTDBG_RECORD_OPS` says how many ops"),
    ("`TORCH_NCCL_DUMP_ON_TIMEOUT`, `TORCH_FR_DUMP_TEMP_FILE`",
     "the record is on disk at any moment; `distdbg export --to torch-fr` writes torch's form"),
    ("`UCC_*`", "UCC reads them itself: [over UCC](../how-to/run-over-ucc.md)"),
    ("`MPICH_*`, `OMPI_MCA_*`", "MPI reads them itself: [over MPI](../how-to/run-over-mpi.md)"),
)  # fmt: skip


def other_variables() -> Iterator[str]:
    """The lines of the section."""
    yield "## Variables of others"
    yield ""
    yield "Those that are read, or set for the ranks:"
    yield from _table("meaning", READ)
    yield "Those that change nothing here, and what does what they do for torch:"
    yield from _table("here", IGNORED)


def _table(title: str, rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield ""
    yield f"| variable | {title} |"
    yield "|---|---|"
    for names, about in rows:
        yield f"| {names} | {about} |"
    yield ""
