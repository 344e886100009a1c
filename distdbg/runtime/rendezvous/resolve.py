"""Decide who this rank is and where the ranks meet, from arguments, URL and environment. Pure.

Three places to meet: a TCPStore at a known address, where rank 0 or the launcher serves it, a file that
all ranks can lock (FileStore), or a place on this host: rank 0 opens a TCPStore on any free port and
publishes the address in a private file. That needs no port to be agreed on before, so it is taken
whenever all ranks are on one host and nobody named an address.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from distdbg.errors import ConfigError, UsageError
from distdbg.runtime.rendezvous.detect import LAUNCHER_NAMES, LauncherInfo, detect, read_count

#: The scheme of a store that is there before the ranks are, and stays until they are gone.
_LAUNCHER = "launcher"
#: Derived ports lie below the range from which systems hand out ports by themselves.
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class AtAddress:
    """Rank 0, or the launcher, listens at host:port, which every rank knows."""

    host: str
    port: int
    by_launcher: bool = False
    prefix: str = ""
    """What the keys of these ranks begin with in the store of their launcher."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.by_launcher:
            return f"{_LAUNCHER}://{host}:{self.port}{self.prefix and '/'}{self.prefix}"
        return f"tcp://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class AtFile:
    """All ranks lock and read one file."""

    path: str

    def __str__(self) -> str:
        return f"file://{self.path}"


@dataclass(frozen=True, slots=True)
class AtPublishedAddress:
    """Rank 0 publishes a port in a file of this host that only this user can read."""

    key: str
    """What all ranks of the run have in common, and no other run of this user."""
    path: str | None = None
    """The file itself, if one was named; else its name is made from the key."""

    def __str__(self) -> str:
        return f"local://{self.path}" if self.path else f"this host ({self.key})"


Where = AtAddress | AtFile | AtPublishedAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinPlan:
    """All that has to be known to join."""

    rank: int
    world_size: int
    where: Where
    place: LauncherInfo | None = None
    """What the launcher told, for telling later where a rank was expected."""


def plan_meeting(
    url: str,
    rank: int,
    world_size: int,
    environ: Mapping[str, str],
    launcher_process: str,
) -> JoinPlan:
    """Return who this rank is and where to go; `rank` and `world_size` are -1 where not given.

    `launcher_process` identifies the process that started the ranks of this host; it is the job's
    name where the launcher gives none. Raises UsageError or ConfigError.
    """
    parts, asked = _parse(url)
    rank = asked.get("rank", -1) if rank < 0 else rank
    world_size = asked.get("world_size", -1) if world_size < 0 else world_size
    if parts.scheme == "env":
        return _plan_env(rank, world_size, environ, launcher_process)
    where = _where(parts, url)
    if rank < 0 or world_size < 0:
        # A URL says where, the launcher may still say who.
        place = find_place(environ)
        if place is not None:
            rank = place.rank if rank < 0 else rank
            world_size = place.world_size if world_size < 0 else world_size
    else:
        place = _matching_place(environ, rank, world_size)
    absent = [n for n, v in (("rank", rank), ("world_size", world_size)) if v < 0]
    if absent:
        raise UsageError(
            f"init_process_group at {url!r} needs {' and '.join(absent)}",
            hint="pass rank= and world_size=, or write them into the URL: "
            f"{parts.scheme}://...?rank=0&world_size=4",
        )
    return _checked(JoinPlan(rank=rank, world_size=world_size, where=where, place=place))


def find_place(environ: Mapping[str, str]) -> LauncherInfo | None:
    """Return what RANK, WORLD_SIZE and their like say, else what an MPI launcher or Slurm says."""
    if "RANK" not in environ or "WORLD_SIZE" not in environ:
        return detect(environ)
    is_torchrun = "TORCHELASTIC_RUN_ID" in environ
    return LauncherInfo(
        launcher="torchrun" if is_torchrun else "environment",
        rank=read_count(environ, "RANK"),
        world_size=read_count(environ, "WORLD_SIZE"),
        local_rank=read_count(environ, "LOCAL_RANK") if "LOCAL_RANK" in environ else None,
        local_world_size=(
            read_count(environ, "LOCAL_WORLD_SIZE") if "LOCAL_WORLD_SIZE" in environ else None
        ),
        job=_torchrun_job(environ) if is_torchrun else None,
    )


def derive_port(job: str) -> int:
    """Return the port on the first host when a job spans hosts and named no port."""
    return _PORTS[zlib.crc32(job.encode()) % len(_PORTS)]


def _plan_env(
    rank: int, world_size: int, environ: Mapping[str, str], launcher_process: str
) -> JoinPlan:
    place = find_place(environ)
    if rank < 0 and (place or "RANK" in environ):
        rank = place.rank if place else read_count(environ, "RANK")
    if world_size < 0 and (place or "WORLD_SIZE" in environ):
        world_size = place.world_size if place else read_count(environ, "WORLD_SIZE")
    absent = [n for n, v in (("RANK", rank), ("WORLD_SIZE", world_size)) if v < 0]
    is_lone_place = place is not None and place.launcher == "environment"
    named_where = environ.get("DISTDBG_STORE", "").strip()
    if (place is None or is_lone_place) and not named_where:
        absent += [n for n in ("MASTER_ADDR", "MASTER_PORT") if not environ.get(n, "").strip()]
    if absent:
        given = [
            f"{n}={environ[n]}"
            for n in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            if environ.get(n)
        ]
        raise ConfigError(
            f"init_process_group by env:// needs variables that are not set: {', '.join(absent)}",
            details=[
                f"set: {', '.join(given) or 'none of them'}",
                f"no launcher was recognised (known: torchrun, {', '.join(LAUNCHER_NAMES)})",
            ],
            hint="start the script with torchrun, mpiexec or srun, or from dist.spawn, "
            "or pass init_method=, rank= and world_size=",
        )
    where = _where_env(place, environ, named_where, launcher_process)
    return _checked(JoinPlan(rank=rank, world_size=world_size, where=where, place=place))


def _where_env(
    place: LauncherInfo | None, environ: Mapping[str, str], named_where: str, launcher_process: str
) -> Where:
    address = environ.get("MASTER_ADDR", "").strip()
    port = environ.get("MASTER_PORT", "").strip()
    # The port that torchrun names is often taken by its own store, which speaks another protocol.
    is_port_taken = environ.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    # MASTER_ADDR and MASTER_PORT may be for another library in the same ranks.
    # A torchrun that a rank has started says by its store that these are its ranks, not the launcher's.
    is_of_launcher = named_where.startswith(f"{_LAUNCHER}://")
    is_for_us = is_of_launcher and not is_port_taken
    if is_of_launcher and not is_for_us:
        named_where = ""
    if named_where and (is_for_us or not (address and port)):
        return _where(_parse(named_where)[0], named_where)
    if address and port and not is_port_taken:
        return AtAddress(address, _read_port("MASTER_PORT", port))
    if place is None:
        # Rank and size came as arguments, so _plan_env has seen to it that an address is there.
        raise ConfigError("TORCHELASTIC_USE_AGENT_STORE is set but not RANK and WORLD_SIZE")
    job = place.job or f"{place.launcher} {launcher_process}"
    if place.is_one_host and not port:
        return AtPublishedAddress(job)
    if place.is_one_host and is_port_taken:
        return AtPublishedAddress(job)
    first_host = address or (place.hosts[0] if place.hosts else "")
    if not first_host:
        raise ConfigError(
            f"the {place.world_size} ranks started by {place.launcher} are on several hosts, "
            "and nothing names the host of rank 0",
            hint="set MASTER_ADDR to the host of rank 0",
        )
    if port and not is_port_taken:
        return AtAddress(first_host, _read_port("MASTER_PORT", port))
    if place.job is None:
        raise ConfigError(
            f"{place.launcher} names no job from which a port on {first_host} could be derived",
            hint="set MASTER_PORT to a free port of that host",
        )
    return AtAddress(first_host, derive_port(place.job))


def _matching_place(environ: Mapping[str, str], rank: int, world_size: int) -> LauncherInfo | None:
    # Only for messages, so a launcher that tells something else, or nothing readable, is ignored.
    try:
        place = find_place(environ)
    except ConfigError:
        return None
    if place is None or (place.rank, place.world_size) != (rank, world_size):
        return None
    return place


def _torchrun_job(environ: Mapping[str, str]) -> str:
    names = (
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
    )
    job = "torchrun " + "/".join(environ.get(name, "") for name in names)
    # All of these may repeat in the next run. The folder for error files is new in every run; it
    # ends in attempt_N/LOCAL_RANK/error.json, and only on a single host all ranks have the same.
    folder = PurePosixPath(environ.get("TORCHELASTIC_ERROR_FILE", ""))
    if environ.get("LOCAL_WORLD_SIZE") == environ.get("WORLD_SIZE") and len(folder.parents) > 2:
        job += f"/{folder.parents[1]}"
    return job


def _parse(url: str) -> tuple[SplitResult, dict[str, int]]:
    parts = urlsplit(url)
    query = parse_qs(parts.query, keep_blank_values=True)
    asked: dict[str, int] = {}
    for name in ("rank", "world_size"):
        if name in query:
            text = query[name][-1]
            if not re.fullmatch(r"\d+", text):
                raise UsageError(f"{name}={text!r} in {url!r} is not a number")
            asked[name] = int(text)
    return parts, asked


def _where(parts: SplitResult, url: str) -> Where:
    if parts.scheme in ("tcp", _LAUNCHER):
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or port is None:
            raise UsageError(
                f"{url!r} does not name a host and a port", hint=f"write {parts.scheme}://n01:29500"
            )
        if parts.scheme == _LAUNCHER:
            return AtAddress(host, port, by_launcher=True, prefix=parts.path.strip("/"))
        return AtAddress(host, port)
    if parts.scheme in ("file", "local"):
        path = unquote(parts.path)
        if parts.netloc:
            # file://relative/path parses as a host; torch takes it for a path, so do we.
            path = unquote(parts.netloc) + path
        if not path or path.endswith("/"):
            raise UsageError(
                f"{url!r} does not name a file", hint=f"write {parts.scheme}:///path/of/a/file"
            )
        return AtFile(path) if parts.scheme == "file" else AtPublishedAddress(path, path)
    raise UsageError(
        f"{url!r} is not a place where ranks can meet: unknown scheme {parts.scheme!r}",
        hint="use env://, tcp://host:port, file:///path, or register_rendezvous_handler",
    )


def _read_port(name: str, text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConfigError(f"the variable {name}={text!r} is not a port; expected 1 to 65535")
    return int(text)


def _checked(meeting: JoinPlan) -> JoinPlan:
    if meeting.world_size < 1:
        raise UsageError(f"world_size is {meeting.world_size}; a world has at least one rank")
    if meeting.rank >= meeting.world_size:
        last = meeting.world_size - 1
        raise UsageError(
            f"rank {meeting.rank} does not exist in a world of {meeting.world_size}: "
            f"ranks are {f'0 to {last}' if last else '0 only'}"
        )
    return meeting
