"""Recognise the launcher and this rank's place from environment variables. Pure.

One row per launcher, the first that fits wins. Order matters: an MPI launcher inside a Slurm job
leaves Slurm's variables of the batch script in place, and those describe the script, not the ranks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from distdbg.errors import ConfigError

_LIMIT = 100_000  # a typo in a range must not fill the memory


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherInfo:
    """What a launcher told this rank about itself."""

    launcher: str
    rank: int
    world_size: int
    local_rank: int | None = None
    local_world_size: int | None = None
    job: str | None = None
    """Same on all ranks of the job, and of no other job at the same time; None: not told."""
    hosts: tuple[str, ...] = ()
    """In the order of the ranks, where known."""

    @property
    def is_one_host(self) -> bool:
        """Whether all ranks are certainly on this host."""
        return self.local_world_size == self.world_size or (
            self.local_world_size is None and len(self.hosts) == 1
        )


@dataclass(frozen=True, slots=True)
class _Launcher:
    name: str
    rank: str
    world_size: tuple[str, ...]  # alternatives, the most specific first
    local_rank: tuple[str, ...] = ()
    local_world_size: tuple[str, ...] = ()
    #: All that are set make up the job's identity.
    job: tuple[str, ...] = ()
    #: At least one must be set, otherwise the row does not apply.
    only_with: tuple[str, ...] = ()


_LAUNCHERS = (
    _Launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",),
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ("PMIX_NAMESPACE", "PMIX_SERVER_TMPDIR", "OMPI_MCA_ess_base_jobid"),
    ),
    _Launcher(
        "MVAPICH",
        "MV2_COMM_WORLD_RANK",
        ("MV2_COMM_WORLD_SIZE",),
        ("MV2_COMM_WORLD_LOCAL_RANK",),
        ("MV2_COMM_WORLD_LOCAL_SIZE",),
    ),
    # Before PMI: PALS sets PMI_RANK too, but only its own variables name the job.
    _Launcher(
        "PALS",
        "PALS_RANKID",
        ("PMI_SIZE",),
        ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"),
        ("PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"),
        ("PALS_APID",),
        only_with=("PMI_SIZE",),
    ),
    # MPICH's hydra and Intel MPI; hydra names no job at all.
    _Launcher(
        "PMI",
        "PMI_RANK",
        ("PMI_SIZE",),
        ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
        ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
        ("PMI_ID_JOB", "PMI_JOBID"),
    ),
    # SLURM_PROCID alone also exists in the batch script, where there are not ranks yet.
    _Launcher(
        "Slurm",
        "SLURM_PROCID",
        ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"),
        ("SLURM_LOCALID",),
        (),
        ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
        only_with=("SLURM_STEP_NODELIST", "SLURM_STEP_ID"),
    ),
    _Launcher("PMIx", "PMIX_RANK", ("PMIX_SIZE",), ("PMIX_LOCAL_RANK",), (), ("PMIX_NAMESPACE",)),
)

LAUNCHER_NAMES = tuple(launcher.name for launcher in _LAUNCHERS)


def detect(environ: Mapping[str, str]) -> LauncherInfo | None:
    """Return this rank's place as its launcher describes it, or None without a known launcher."""
    for launcher in _LAUNCHERS:
        if launcher.rank not in environ:
            continue
        if launcher.only_with and not any(name in environ for name in launcher.only_with):
            continue
        size_name = _first_set(environ, launcher.world_size)
        if size_name is None:
            raise ConfigError(
                f"{launcher.name} set {launcher.rank}={environ[launcher.rank]} "
                "but not how many ranks there are",
                hint="set WORLD_SIZE, or pass world_size= to init_process_group",
            )
        rank = read_count(environ, launcher.rank)
        world_size = read_count(environ, size_name)
        hosts = _find_hosts(environ)
        local_size_name = _first_set(environ, launcher.local_world_size)
        local_rank_name = _first_set(environ, launcher.local_rank)
        return LauncherInfo(
            launcher=launcher.name,
            rank=rank,
            world_size=world_size,
            local_rank=None if local_rank_name is None else read_count(environ, local_rank_name),
            local_world_size=(
                _slurm_local_size(environ, hosts, world_size)
                if local_size_name is None
                else read_count(environ, local_size_name)
            ),
            job="/".join(f"{n}={environ[n]}" for n in launcher.job if n in environ) or None,
            hosts=hosts,
        )
    return None


def read_count(environ: Mapping[str, str], name: str) -> int:
    """Return a variable as a number from 0; ConfigError otherwise."""
    text = environ[name].strip()
    if not text.isdecimal():
        raise ConfigError(f"the variable {name}={environ[name]!r} is not valid; expected a number")
    return int(text)


def _first_set(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _find_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    # Also for an MPI launcher that runs inside a Slurm job: the first host is the same there.
    name = _first_set(environ, ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    return () if name is None else tuple(expand_hosts(environ[name]))


def _slurm_local_size(
    environ: Mapping[str, str], hosts: tuple[str, ...], world_size: int
) -> int | None:
    if len(hosts) == 1:
        return world_size
    # '2(x3),1': how many ranks each host has. Only an equal share can be distinguished by rank alone.
    name = _first_set(environ, ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"))
    if name is None or "," in environ[name]:
        return None
    share = environ[name].partition("(")[0].strip()
    return int(share) if share.isdecimal() else None


def expand_hosts(text: str) -> list[str]:
    """Return the hosts of a list in their order; ConfigError if it cannot be read."""
    hosts: list[str] = []
    for entry in _split(text):
        parts = re.split(r"(\[[^\]]*\])", entry)
        choices = [
            _expand(part, text) if part.startswith("[") else [part] for part in parts if part
        ]
        hosts.extend("".join(combination) for combination in product(*choices))
        if len(hosts) > _LIMIT:
            raise ConfigError(f"the host list {text[:60]!r} names more than {_LIMIT} hosts")
    return hosts


def _split(text: str) -> list[str]:
    # At the commas outside of brackets.
    entries, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            entries.append(text[start:position])
            start = position + 1
        if depth not in (0, 1):
            break
    if depth != 0:
        raise ConfigError(f"the host list {text!r} has brackets that do not match")
    entries.append(text[start:])
    return [entry.strip() for entry in entries if entry.strip()]


def _expand(bracket: str, text: str) -> list[str]:
    numbers: list[str] = []
    for item in bracket[1:-1].split(","):
        low, dash, high = item.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise ConfigError(f"the host list {text!r} has {item!r} where a number belongs")
        last = int(high) if dash else int(low)
        if last - int(low) > _LIMIT:
            raise ConfigError(f"the host list {text[:60]!r} names more than {_LIMIT} hosts")
        # Leading zeros count: n[01-03] is n01, not n1.
        numbers.extend(str(number).zfill(len(low)) for number in range(int(low), last + 1))
    return numbers
