"""Starts the agent of this host: done by the first rank of each host, unless a launcher did it.

The agent is no child of the rank and holds nothing of it: a shell of a moment's life starts it in a
session of its own, so no process has to wait for it, no pipe of a launcher stays open, and it runs on when
this rank dies. It leaves by itself after the last rank of the host.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import distdbg
from distdbg import config
from distdbg.errors import format_ranks
from distdbg.log.logs import get_logger
from distdbg.record.host import host_name
from distdbg.runtime.rendezvous.token import run_token
from distdbg.runtime.store import PrefixStore, TCPStore

if TYPE_CHECKING:
    from distdbg.runtime.rendezvous import Membership

_SHELL: Final = "/bin/sh"
#: Starts its arguments and does not wait for them.
_SCRIPT: Final = '"$@" &'

_log = get_logger("agent")


def start_agent(membership: Membership, run_folder: Path | None, run: str) -> bool:
    """Start the agent if this is the first rank of its host; whether it did.

    Not for ranks that are threads of one process, and not without records: there is nothing to see.
    """
    members = membership.members
    me = members[membership.rank]
    hosts = list(dict.fromkeys(member.host for member in members))
    here = [rank for rank, member in enumerate(members) if member.host == me.host]
    if run_folder is None or here[0] != membership.rank:
        return False
    if len(members) > 1 and all(member.process == me.process for member in members):
        return False
    if not config.read_setting("DISTDBG_AGENT"):
        return False
    way = way_to_others(membership, run, hosts, me.host) if len(hosts) > 1 else None
    try:
        spawn_agent(run_folder, run, host_name(), here, way)
    except OSError as error:
        _log.warning("this host has no agent: %s", error, rank=membership.rank)
        return False
    return True


@dataclass(frozen=True, slots=True)
class PeerDiscovery:
    """How an agent finds those of the job's other hosts."""

    store: str
    nodes: int
    node_rank: int
    round_number: int
    token: bytes


def way_to_others(
    membership: Membership, run: str, hosts: Sequence[str], host: str
) -> PeerDiscovery | None:
    """By the store in which the ranks met; None where that is no server: each agent is alone then."""
    store = membership.base_store
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if not isinstance(store, TCPStore):
        _log.info("agents of several hosts meet in a TCPStore only", rank=membership.rank)
        return None
    address = f"[{store.host}]" if ":" in store.host else store.host
    return PeerDiscovery(
        f"tcp://{address}:{store.port}/agents/{run}",
        len(hosts),
        hosts.index(host),
        membership.round,
        run_token(),
    )


def spawn_agent(
    folder: Path, run: str, host: str, ranks: Sequence[int], way: PeerDiscovery | None = None
) -> None:
    """Start an agent; OSError when that cannot be. Takes some milliseconds."""
    command = [
        sys.executable,
        "-P",  # not from the folder that the program happens to be in
        *("-m", "distdbg.agent"),
        *("--folder", os.fspath(folder), f"--run={run}", f"--host={host}"),
        *("--ranks", format_ranks(ranks, limit=len(ranks))),
    ]
    environ = dict(os.environ)
    if way is not None:
        command += ["--store", way.store, "--nodes", str(way.nodes)]
        command += ["--node-rank", str(way.node_rank), "--round", str(way.round_number)]
        environ["DISTDBG_TOKEN"] = os.fsdecode(way.token)
    log = os.path.join(folder, f"agent-{host}.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, log, flags, 0o600),
        *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited()),
    ]
    parent = os.path.dirname(os.path.dirname(os.path.abspath(distdbg.__file__)))
    paths = [parent, *filter(None, environ.get("PYTHONPATH", "").split(os.pathsep))]
    environ["PYTHONPATH"] = os.pathsep.join(paths)
    if os.access(_SHELL, os.X_OK):
        command = [_SHELL, "-c", _SCRIPT, _SHELL, *command]
        pid = _spawn(command, environ, actions)
        os.waitpid(pid, 0)
    else:
        _spawn(command, environ, actions)  # a child of the rank then, which is all that is lost


def _spawn(
    command: list[str], environ: dict[str, str], actions: Sequence[tuple[object, ...]]
) -> int:
    return os.posix_spawn(
        command[0],
        command,
        environ,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=range(1, 32),
    )


def _inherited() -> list[int]:
    """The descriptors that a new program would inherit."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        try:
            if fd > 2 and os.get_inheritable(fd):
                found.append(fd)
        except OSError:
            continue  # the one that listed the folder
    return found
