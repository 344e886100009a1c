"""The options of `distdbg run`: its flags, checked and converted.

Pure: environment and host are arguments. Where the launchers meet is in rendezvous_settings.py.
"""

from __future__ import annotations

import argparse
import enum
import math
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distdbg import config
from distdbg.errors import ConfigError, UsageError
from distdbg.launch.endpoint import parse_endpoint
from distdbg.launch.exports import ExportOptions, read_exports
from distdbg.launch.nproc import count_ranks
from distdbg.launch.numa import NumaBinding
from distdbg.launch.output_streams import StdStreams, parse_std
from distdbg.launch.rendezvous_settings import C10D, LOCAL, STATIC, read_meeting

_EVENT_HANDLERS = ("null", "console")
_SHUTDOWN_TIMEOUT_S = 30


class ScriptForm(enum.Enum):
    PYTHON = "a file that Python runs"
    MODULE = "a module, as for python -m"
    PROGRAM = "a program, run as it is"
    RUN_PATH = "a file for runpy.run_path"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchHost:
    """What has to be known about the host."""

    cpus: int
    """How many may be used here."""
    gpus: int
    """How many are visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    script: str
    script_args: tuple[str, ...] = ()
    form: ScriptForm = ScriptForm.PYTHON
    passes_local_rank: bool = False
    """Whether each script gets --local-rank=N, as torch.distributed.launch does."""

    min_nodes: int = 1
    max_nodes: int = 1
    nproc: int = 1
    role: str = "default"

    rdzv_backend: str = C10D
    rdzv_endpoint: str = f"{LOCAL}:0"
    """As given; what it means is up to the backend."""
    rdzv_host: str = LOCAL
    rdzv_port: int = 0
    """The endpoint of static and c10d, read; port 0: any free one."""
    rdzv_id: str = "none"
    rdzv_conf: Mapping[str, str] = field(default_factory=dict)
    standalone: bool = True
    """This launcher is alone, and nobody can join it."""
    node_rank: int = 0
    local_addr: str | None = None
    master_addr: str | None = None
    """What the ranks get as MASTER_ADDR; None: the address of the host of rank 0."""
    master_port: int | None = None
    """What the ranks get as MASTER_PORT; None: a free port on the host of rank 0."""

    max_restarts: int = 0
    monitor_interval_s: float = 0.1
    shutdown_timeout_s: int = _SHUTDOWN_TIMEOUT_S
    signals_to_handle: tuple[signal.Signals, ...] = (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
    )
    start_method: str = "spawn"
    event_log_handler: str = "null"

    log_dir: Path | None = None
    logs_specs: str | None = None
    redirects: tuple[StdStreams, ...] = (StdStreams.NONE,)
    """By local rank."""
    tee: tuple[StdStreams, ...] = (StdStreams.NONE,)
    """By local rank; what is teed is redirected as well."""
    local_ranks_filter: frozenset[int] | None = None
    """The ranks whose output is shown; None: all."""
    duplicate_stdout_filters: tuple[str, ...] = ()
    duplicate_stderr_filters: tuple[str, ...] = ()
    log_line_prefix_template: str | None = None
    """TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE: ${role_name}, ${local_rank}, ${rank}."""

    numa_binding: NumaBinding | None = None
    virtual_local_rank: bool = False

    run_dir: Path | None = None
    agent: bool = True
    agent_listen: tuple[str, int] | None = None
    abort_on: str | None = None
    """DISTDBG_ABORT_ON of the agent; None: as it is."""
    exports: ExportOptions = field(default_factory=ExportOptions)
    """What the agent serves and sends to other tools."""

    op_timeout_s: float | None = None
    debuggable: bool = False
    torch: bool = True
    debug_on_error: bool = False

    notes: tuple[str, ...] = ()
    """Lines for stderr: what was decided or ignored without being asked."""


#: What --on-deadlock means.
_ABORT_ON: Mapping[str | None, str] = {
    "abort": config.read_str("DISTDBG_ABORT_ON", {}),
    "report": "none",
}


def read_options(
    flags: argparse.Namespace, environ: Mapping[str, str], machine: LaunchHost
) -> RunOptions:
    """Check what `flags.parse` returned; UsageError names the first flag that does not fit."""
    min_nodes, max_nodes = _read_nnodes(flags.nnodes)
    nproc = count_ranks(flags.nproc_per_node, cpus=machine.cpus, gpus=machine.gpus)
    meeting = read_meeting(flags, min_nodes, max_nodes)
    has_agent = not flags.no_agent and bool(config.read_setting("DISTDBG_AGENT", environ))
    exports = read_exports(
        environ,
        port=flags.metrics_port,
        address=flags.metrics_address,
        folder=flags.metrics_file,
        push=flags.metrics_push,
        otlp=flags.otlp,
    )
    omp = _omp_notes(environ, nproc, machine.cpus, flags.node_rank)
    return RunOptions(
        script=flags.training_script,
        script_args=tuple(flags.training_script_args),
        form=_read_form(flags),
        passes_local_rank=not flags.use_env,
        min_nodes=min_nodes,
        max_nodes=1 if meeting.standalone else max_nodes,
        nproc=nproc,
        role=flags.role,
        rdzv_backend=meeting.backend,
        rdzv_endpoint=meeting.endpoint,
        rdzv_host=meeting.host,
        rdzv_port=meeting.port,
        rdzv_id=meeting.id,
        rdzv_conf=_read_conf(flags.rdzv_conf),
        standalone=meeting.standalone,
        node_rank=flags.node_rank if meeting.backend == STATIC else 0,
        local_addr=flags.local_addr,
        master_addr=meeting.master_addr,
        master_port=meeting.master_port,
        max_restarts=_at_least("--max-restarts", flags.max_restarts, 0),
        monitor_interval_s=_read_interval(flags.monitor_interval),
        shutdown_timeout_s=_read_shutdown_timeout(flags.shutdown_timeout, environ),
        signals_to_handle=_read_signals(flags.signals_to_handle),
        start_method=flags.start_method,
        event_log_handler=_one_of("--event-log-handler", flags.event_log_handler, _EVENT_HANDLERS),
        log_dir=None if flags.log_dir is None else Path(flags.log_dir),
        logs_specs=_read_logs_specs(flags.logs_specs),
        redirects=parse_std("--redirects", flags.redirects, nproc),
        tee=parse_std("--tee", flags.tee, nproc),
        local_ranks_filter=_read_filter(flags.local_ranks_filter),
        duplicate_stdout_filters=tuple(flags.duplicate_stdout_filters),
        duplicate_stderr_filters=tuple(flags.duplicate_stderr_filters),
        log_line_prefix_template=environ.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE") or None,
        numa_binding=None if flags.numa_binding is None else NumaBinding(flags.numa_binding),
        virtual_local_rank=_read_virtual(flags.virtual_local_rank, environ, nproc),
        run_dir=_read_run_dir(flags.run_dir),
        agent=has_agent,
        agent_listen=_read_listen(flags.agent_listen),
        abort_on=_ABORT_ON.get(flags.on_deadlock),
        exports=exports,
        op_timeout_s=_read_op_timeout(flags.timeout),
        debuggable=flags.debuggable,
        torch=flags.torch,
        debug_on_error=flags.debug_on_error,
        notes=(*meeting.notes, *omp, *_export_notes(exports, has_agent)),
    )


def _read_run_dir(text: str | None) -> Path | None:
    if text == "":
        raise UsageError("--run-dir is empty; expected a folder")  # Path("") is the current one
    return None if text is None else Path(text)


def _read_nnodes(text: str) -> tuple[int, int]:
    parts = text.split(":")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2):
        raise UsageError(f"--nnodes={text!r} is not valid; expected a number or MIN:MAX")
    low, high = numbers[0], numbers[-1]
    if low < 1:
        raise UsageError(f"--nnodes={text}: at least one host is needed")
    if low > high:
        raise UsageError(f"--nnodes={text}: the least, {low}, is more than the most, {high}")
    return low, high


def _read_form(flags: argparse.Namespace) -> ScriptForm:
    if flags.run_path:
        return ScriptForm.RUN_PATH
    if flags.no_python and flags.module:
        raise UsageError(
            "--no-python and --module exclude each other: a module is run by Python",
            hint="leave one of them out",
        )
    if flags.no_python:
        if not flags.use_env:
            raise UsageError(
                "--no-python needs --use-env as well: a program gets no --local-rank",
                hint="add --use-env, or use `distdbg run`",
            )
        return ScriptForm.PROGRAM
    return ScriptForm.MODULE if flags.module else ScriptForm.PYTHON


def _read_conf(text: str) -> dict[str, str]:
    conf = {}
    for item in filter(None, text.strip().split(",")):
        key, _, value = (part.strip() for part in item.partition("="))
        if not key or not value:
            raise UsageError(
                f"--rdzv-conf={text!r}: {item!r} is not valid; expected KEY=VALUE,KEY=VALUE"
            )
        conf[key] = value
    return conf


def _at_least(flag: str, number: int, least: int) -> int:
    if number < least:
        raise UsageError(f"{flag}={number} is less than {least}")
    return number


def _one_of(flag: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise UsageError(f"{flag}={text!r} is unknown; expected one of {', '.join(choices)}")
    return text


def _read_interval(interval_s: float) -> float:
    if not (math.isfinite(interval_s) and interval_s > 0):
        raise UsageError(f"--monitor-interval={interval_s}: expected seconds, more than 0")
    return interval_s


def _read_op_timeout(given: float | None) -> float | None:
    """How long an op may wait; ranks read it from their environment."""
    if given is not None and not 0 < given < math.inf:
        raise UsageError(f"--timeout={given:g} is not valid; expected a number of seconds above 0")
    return given


def _read_shutdown_timeout(given: int | None, environ: Mapping[str, str]) -> int:
    if given is not None:
        return _at_least("--shutdown-timeout", given, 0)
    name = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
    text = environ.get(name, "").strip()
    if not text:
        return _SHUTDOWN_TIMEOUT_S
    if not text.isdecimal():
        raise ConfigError(f"the variable {name}={text!r} is not valid; expected a whole number")
    return int(text)


def _read_signals(text: str) -> tuple[signal.Signals, ...]:
    found = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        try:
            found.append(signal.Signals[name.upper()])
        except KeyError:
            raise UsageError(
                f"--signals-to-handle={text!r}: {name!r} is no signal; expected names as SIGUSR1"
            ) from None
        if found[-1] in (signal.SIGKILL, signal.SIGSTOP):
            raise UsageError(f"--signals-to-handle={text!r}: nothing can handle {name.upper()}")
    return tuple(dict.fromkeys(found))


def _read_logs_specs(name: str | None) -> str | None:
    if name not in (None, "default"):
        raise UsageError(
            f"--logs-specs={name!r} is unknown; only default is here",
            details=[
                "classes in the group torchrun.logs_specs are made for torchrun's own launcher"
            ],
            hint="--log-dir, --redirects, --tee and --local-ranks-filter say where output goes",
        )
    return name


def _read_filter(text: str) -> frozenset[int] | None:
    if not text.strip():
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"--local-ranks-filter={text!r} is not valid; expected local ranks: 0,1,2")
    return frozenset(map(int, parts))


def _read_virtual(is_wanted: bool, environ: Mapping[str, str], nproc: int) -> bool:
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if is_wanted and visible is not None and len(visible.split(",")) < nproc:
        raise UsageError(
            f"--virtual-local-rank: {nproc} ranks want a GPU each, but "
            f"CUDA_VISIBLE_DEVICES={visible} has {len(visible.split(','))}"
        )
    return is_wanted


def _read_listen(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, port = parse_endpoint("--agent-listen", text)
    if port is None:
        raise UsageError(f"--agent-listen={text!r} has no port; expected HOST:PORT")
    return host, port


def _omp_notes(
    environ: Mapping[str, str], nproc: int, cpus: int, node_rank: int | None
) -> tuple[str, ...]:
    """Only where ranks leave cores idle by it, and from one launcher of several."""
    share = cpus // nproc
    if nproc == 1 or "OMP_NUM_THREADS" in environ or share < 2 or node_rank:
        return ()
    return (
        f"note: OMP_NUM_THREADS is 1 in each rank; {share} cores for each are there, "
        "set it to use them",
    )


def _export_notes(exports: ExportOptions, has_agent: bool) -> tuple[str, ...]:
    if has_agent or not exports.is_asked:
        return ()
    return (
        "there is no agent, so nothing is exported; `distdbg exporter` serves metrics without one",
    )
