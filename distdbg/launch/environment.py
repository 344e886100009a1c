"""The environment and command line of one rank. Pure.

The variables are torchrun's, so a script for torchrun finds all it looks for, and the few that say
where distdbg's own things are:

    DISTDBG_STORE     where the ranks meet; wins over MASTER_ADDR and MASTER_PORT
    DISTDBG_TOKEN     the secret of the run
    DISTDBG_RUN       its name;  DISTDBG_RUN_DIR: the folder of this start's records
    DISTDBG_HOST      what this host is called
    DISTDBG_AGENT=0   the launcher has started the agent, or none is wanted
    DISTDBG_DEBUGGABLE, DISTDBG_DEBUG_ON_ERROR   1 with the flags of the same names
    DISTDBG_TORCH     1, or 0 with --no-torch
    DISTDBG_OTLP      with --otlp: a rank notes which span of the program its ops belong to

MASTER_PORT is free when the ranks start: torch's rank 0 binds it, which TORCHELASTIC_USE_AGENT_STORE
says to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from distdbg.launch.options import RunOptions, ScriptForm
from distdbg.launch.rendezvous.round import NodeFacts

_OMP = "OMP_NUM_THREADS"
_FAULTHANDLER = "PYTHONFAULTHANDLER"
_NCCL = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
_GPUS = "CUDA_VISIBLE_DEVICES"
_LOCAL_RANK = "${local_rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStart:
    nodes: tuple[NodeFacts, ...]
    """The nodes of the round; ranks are numbered node by node."""
    node_rank: int
    restarts: int
    """How many failures there were before; a host that joined is none."""
    run: str
    folder: Path
    """Where the records of this start go."""
    host: str
    store: str
    token: str
    master_addr: str
    master_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    role_rank: int
    """Among the ranks of all hosts that have the same role."""
    role_world_size: int


def find_place(nodes: tuple[NodeFacts, ...], node_rank: int, local_rank: int) -> RankPlace:
    """Number a rank, among all and among those of its role."""
    node = nodes[node_rank]
    before = nodes[:node_rank]
    return RankPlace(
        rank=sum(other.nproc for other in before) + local_rank,
        world_size=sum(other.nproc for other in nodes),
        local_rank=local_rank,
        local_world_size=node.nproc,
        role_rank=sum(other.nproc for other in before if other.role == node.role) + local_rank,
        role_world_size=sum(other.nproc for other in nodes if other.role == node.role),
    )


def rank_environment(
    options: RunOptions,
    start: RanksStart,
    local_rank: int,
    *,
    environ: Mapping[str, str],
    error_file: Path | None,
) -> dict[str, str]:
    """Return the whole environment of a rank; `environ` is the launcher's own.

    `error_file` is where the rank may write what ended it; None: nowhere.
    """
    place = find_place(start.nodes, start.node_rank, local_rank)
    errors = "" if error_file is None else str(error_file)
    made = {
        "RANK": place.rank,
        "LOCAL_RANK": 0 if options.virtual_local_rank else local_rank,
        "WORLD_SIZE": place.world_size,
        "LOCAL_WORLD_SIZE": place.local_world_size,
        "GROUP_RANK": start.node_rank,
        "GROUP_WORLD_SIZE": len(start.nodes),
        "ROLE_RANK": place.role_rank,
        "ROLE_WORLD_SIZE": place.role_world_size,
        "ROLE_NAME": options.role,
        "MASTER_ADDR": start.master_addr,
        "MASTER_PORT": start.master_port,
        "TORCHELASTIC_RESTART_COUNT": start.restarts,
        "TORCHELASTIC_MAX_RESTARTS": options.max_restarts,
        "TORCHELASTIC_RUN_ID": options.rdzv_id,
        "TORCHELASTIC_USE_AGENT_STORE": False,
        "TORCHELASTIC_SIGNALS_TO_HANDLE": ",".join(s.name for s in options.signals_to_handle),
        "TORCHELASTIC_ERROR_FILE": errors,
        _NCCL: environ.get(_NCCL, "1"),
        "DISTDBG_STORE": start.store,
        "DISTDBG_TOKEN": start.token,
        "DISTDBG_RUN": start.run,
        "DISTDBG_RUN_DIR": start.folder,
        "DISTDBG_HOST": start.host,
        "DISTDBG_AGENT": 0,
        "DISTDBG_TORCH": int(options.torch),
        # It would win over torchrun's, so one that the launcher itself has must not come through.
        "DISTDBG_ERROR_FILE": errors,
    }
    if options.op_timeout_s is not None:
        made["DISTDBG_TIMEOUT_S"] = options.op_timeout_s
    if options.debuggable:
        made["DISTDBG_DEBUGGABLE"] = 1
    if options.debug_on_error:
        made["DISTDBG_DEBUG_ON_ERROR"] = 1
    if options.exports.signals:
        made["DISTDBG_OTLP"] = options.exports.environment()["DISTDBG_OTLP"]
    # So that a crash of native code leaves its stack; '' is also a choice of the user's.
    if _FAULTHANDLER not in environ:
        made[_FAULTHANDLER] = 1
    if options.nproc > 1 and _OMP not in environ:
        made[_OMP] = 1
    if options.virtual_local_rank:
        visible = environ.get(_GPUS)
        made[_GPUS] = local_rank if visible is None else visible.split(",")[local_rank].strip()
    return {**environ, **{name: str(value) for name, value in made.items()}}


def rank_command(
    options: RunOptions, local_rank: int, *, environ: Mapping[str, str], executable: str
) -> tuple[str, ...]:
    """Return the command line of a rank; `executable` is Python, unless PYTHON_EXEC names another.

    In the arguments of the script, ${local_rank} is the number.
    """
    python = (environ.get("PYTHON_EXEC") or executable, "-u")
    program: tuple[str, ...]
    match options.form:
        case ScriptForm.PYTHON:
            program = (*python, options.script)
        case ScriptForm.MODULE:
            program = (*python, "-m", options.script)
        case ScriptForm.PROGRAM:
            program = (options.script,)
        case ScriptForm.RUN_PATH:
            program = (*python, "-m", "distdbg.launch.run_path", options.script)
        case _:
            assert_never(options.form)
    own = (f"--local-rank={local_rank}",) if options.passes_local_rank else ()
    given = tuple(arg.replace(_LOCAL_RANK, str(local_rank)) for arg in options.script_args)
    return (*program, *own, *given)
