"""Where the launchers of a job meet. Pure; the rules are torchrun's:

    --standalone                       c10d on a free port of this host; other --rdzv flags are ignored
    static, one host, no endpoint      the same, so that two jobs on one host do not collide
    static, several hosts              --rdzv-endpoint, else --master-addr:--master-port (29500); once
                                       they have met, that port is the ranks' MASTER_PORT
    c10d                               --rdzv-endpoint, its port 29400; --node-rank is ignored
    other backends                     whatever is registered under that name is asked, later

With one host, a port that is named is for the ranks: their launcher needs nobody to know its own.
"""

from __future__ import annotations

import argparse
import uuid
from dataclasses import dataclass, replace
from typing import Final

from distdbg.errors import UsageError
from distdbg.launch.endpoint import join_endpoint, parse_endpoint

STATIC: Final = "static"
C10D: Final = "c10d"
LOCAL: Final = "localhost"
_STATIC_PORT = 29500
_C10D_PORT = 29400


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherRendezvous:
    """Where the launchers of a job meet, and what their ranks are told; see RunOptions."""

    backend: str
    endpoint: str
    host: str = ""
    port: int = 0
    id: str
    standalone: bool = False
    master_addr: str | None = None
    master_port: int | None = None
    notes: tuple[str, ...] = ()


def read_meeting(flags: argparse.Namespace, min_nodes: int, max_nodes: int) -> LauncherRendezvous:
    """Apply torchrun's rules to what `flags.parse` returned."""
    backend, endpoint = flags.rdzv_backend.strip(), flags.rdzv_endpoint.strip()
    if backend.lower() in (STATIC, C10D):
        backend = backend.lower()
    if flags.standalone:
        if min_nodes > 1:
            raise UsageError(
                f"--standalone is for one host, but --nnodes={flags.nnodes} wants at least "
                f"{min_nodes}",
                hint="leave out --standalone, and set --rdzv-endpoint to where the hosts meet",
            )
        return _stand_alone(str(uuid.uuid4()))
    if not backend:
        raise UsageError(
            "--rdzv-backend='' is not valid; expected static, c10d or a registered one"
        )
    if backend != STATIC:
        return _meet_elsewhere(flags, backend, endpoint)
    if min_nodes != max_nodes:
        raise UsageError(
            f"--nnodes={flags.nnodes} may change, but --rdzv-backend=static has a fixed set of hosts",
            hint="use --rdzv-backend=c10d, or give one number",
        )
    if flags.master_port is not None and not 0 <= flags.master_port <= 65535:
        raise UsageError(f"--master-port={flags.master_port}: expected a number from 0 to 65535")
    if endpoint:
        host, port = parse_endpoint("--rdzv-endpoint", endpoint)
        if port is None:
            raise UsageError(
                f"--rdzv-endpoint={endpoint!r} has no port, and static needs one",
                hint="HOST:PORT, the same on all hosts",
            )
    else:
        host = parse_endpoint("--master-addr", flags.master_addr)[0]
        port = flags.master_port
    if max_nodes == 1 and port is None:
        return replace(_stand_alone(str(uuid.uuid4())), notes=_node_rank_notes(flags))
    if not 0 <= flags.node_rank < max_nodes:
        raise UsageError(
            f"--node-rank={flags.node_rank} is not one of the {max_nodes} hosts of "
            f"--nnodes={flags.nnodes}; expected 0 to {max_nodes - 1}"
        )
    if max_nodes == 1:
        # Nobody else has to find this launcher, so the port is left to the ranks.
        return _stand_alone(flags.rdzv_id, host, port)
    port = port or _STATIC_PORT
    return LauncherRendezvous(
        backend=STATIC,
        endpoint=endpoint or join_endpoint(host, port),
        host=host,
        port=port,
        id=flags.rdzv_id,
        master_addr=host,
        master_port=port,
    )


def _stand_alone(name: str, host: str | None = None, port: int | None = None) -> LauncherRendezvous:
    return LauncherRendezvous(
        backend=C10D,
        endpoint=f"{LOCAL}:0",
        host=LOCAL,
        id=name,
        standalone=True,
        master_addr=host,
        master_port=port or None,
    )


def _meet_elsewhere(flags: argparse.Namespace, backend: str, endpoint: str) -> LauncherRendezvous:
    host, port = LOCAL, _C10D_PORT
    if backend == C10D and endpoint:
        host, given = parse_endpoint("--rdzv-endpoint", endpoint, _C10D_PORT)
        port = _C10D_PORT if given is None else given
    notes = [*_node_rank_notes(flags)]
    if flags.master_port is not None or flags.master_addr != "127.0.0.1":
        notes.append(
            "--master-addr and --master-port are ignored: only --rdzv-backend=static uses them"
        )
    return LauncherRendezvous(
        backend=backend,
        endpoint=endpoint or (join_endpoint(host, port) if backend == C10D else ""),
        host=host,
        port=port,
        id=flags.rdzv_id,
        notes=tuple(notes),
    )


def _node_rank_notes(flags: argparse.Namespace) -> tuple[str, ...]:
    if flags.node_rank == 0:
        return ()
    why = "only a fixed set of several hosts, --rdzv-backend=static, is numbered"
    return (f"--node-rank={flags.node_rank} is ignored: {why}",)
