"""Open the store at the place where the ranks meet, or report who should have been listening there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import (
    DistError,
    DistNetworkError,
    DistStoreError,
    NotAuthenticatedError,
    RendezvousError,
)
from distdbg.record.durations import duration_text
from distdbg.runtime.process.rank_context import current_context
from distdbg.runtime.rendezvous import published_store
from distdbg.runtime.rendezvous.resolve import AtAddress, AtFile, AtPublishedAddress, JoinPlan

if TYPE_CHECKING:
    from distdbg.runtime.rendezvous.process import ProcessIdentity
    from distdbg.runtime.store import Store

_NONCE_KEY = "distdbg/nonce"
#: A published address is believed for this long per attempt; the file may be replaced meanwhile.
_ATTEMPT_S = 2.0
#: How often it is looked whether somebody has died while rank 0 is waited for.
_LOOK_NS = 250_000_000
_POLL_S = 0.002
_POLL_LIMIT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """An open store."""

    store: Store
    is_host: bool
    """Whether the store ends with this rank."""
    is_exclusive: bool = False
    """Whether the store outlives its ranks, so that only one run may use it at a time."""
    release: Callable[[], None] = lambda: None
    """Take back what was published for finding the store; for when all have found it."""


def reach(
    meeting: JoinPlan,
    deadline_ns: int,
    me: ProcessIdentity,
    look: Callable[[], None] = lambda: None,
) -> OpenStore:
    """Open the store; raises RendezvousError if that is impossible by the deadline.

    `look` is called now and then while nobody serves it, and may raise.
    """
    match meeting.where:
        case AtAddress():
            return _reach_address(meeting, meeting.where, deadline_ns, look)
        case AtFile():
            return _reach_file(meeting, meeting.where)
        case AtPublishedAddress():
            path = meeting.where.path or published_store.published_path(meeting.where.key)
            if meeting.rank == 0:
                return _open_spot(meeting, path, me, deadline_ns)
            return _find_spot(meeting, path, me, deadline_ns, look)


def _reach_address(
    meeting: JoinPlan, where: AtAddress, deadline_ns: int, look: Callable[[], None]
) -> OpenStore:
    from distdbg.runtime.store import PrefixStore, TCPStore

    is_host = meeting.rank == 0 and not where.by_launcher
    started_ns = time.monotonic_ns()
    try:
        store = TCPStore(
            where.host,
            where.port,
            # No world size: the store would count clients, and `assemble` counts ranks.
            is_master=is_host,
            timeout=_left(deadline_ns),
            multi_tenant=True,  # init again after destroy, while the old server is still ending
            _look=look,
        )
    except (DistNetworkError, DistStoreError) as error:
        if is_host:
            if other := _other_rank_0(where.port):
                raise RendezvousError(
                    f"two processes are rank 0 at {where}: this one (pid {os.getpid()}) and {other}",
                    expected=meeting.world_size,
                    hint="give every process its own RANK, and every job its own MASTER_PORT",
                ) from error
            raise RendezvousError(
                f"rank 0 cannot listen at {where} for the other ranks",
                expected=meeting.world_size,
                details=[str(error).splitlines()[0]],
                hint=_hint_about_port(where.port),
            ) from error
        if isinstance(error, NotAuthenticatedError):
            raise _refused(meeting, error) from error
        raise _not_reached(meeting, started_ns, str(error).splitlines()[0]) from error
    if where.prefix:
        return OpenStore(store=PrefixStore(where.prefix, store), is_host=False)
    return OpenStore(store=store, is_host=is_host)


def _hint_about_port(port: int) -> str:
    from distdbg.runtime.store.holder import find_port_holders

    torch = getattr(sys.modules.get("torch"), "distributed", None)
    is_ours = any(pid == os.getpid() for pid, _ in find_port_holders(port))
    if is_ours and torch is not None and torch.is_available() and torch.is_initialized():
        return (
            "torch.distributed of this process serves its own store there: give one of the two another "
            "port on all ranks, as in init_process_group(init_method='tcp://HOST:PORT', rank=..., "
            "world_size=...)"
        )
    return (
        "check that the port is free and the host is this one; "
        "MASTER_PORT=0 does not work: the other ranks could not know the port"
    )


def _other_rank_0(port: int) -> str:
    """The process that serves there and was started as rank 0 as well; '' if it cannot be seen."""
    from distdbg.runtime.store.holder import find_port_holders

    for pid, command in find_port_holders(port):
        with suppress(OSError):  # another user's, or gone
            if pid != os.getpid() and b"RANK=0" in Path(f"/proc/{pid}/environ").read_bytes().split(
                b"\0"
            ):
                return f"{command} (pid {pid})"
    return ""


def _reach_file(meeting: JoinPlan, where: AtFile) -> OpenStore:
    from distdbg.runtime.store import FileStore

    folder = os.path.dirname(os.path.abspath(where.path))
    if not os.path.isdir(folder):
        raise RendezvousError(
            f"the ranks cannot meet at {where}: there is no folder {folder}",
            expected=meeting.world_size,
        )
    try:
        store = FileStore(where.path, meeting.world_size)
    except DistStoreError as error:
        raise RendezvousError(
            f"the ranks cannot meet at {where}: {error.what}",
            expected=meeting.world_size,
            details=error.details,
            hint=error.hint,
        ) from error
    return OpenStore(store=store, is_host=False, is_exclusive=True)


def _open_spot(meeting: JoinPlan, path: str, me: ProcessIdentity, deadline_ns: int) -> OpenStore:
    from distdbg.runtime.store import TCPStore

    former = published_store.read_if_alive(path, me)
    if former is not None and former.writer != me:
        raise RendezvousError(
            f"rank 0 already exists at {meeting.where}: pid {former.writer.pid} "
            f"on {former.writer.host}",
            expected=meeting.world_size,
            hint="give every process its own rank, and every run its own place to meet",
        )
    store = TCPStore(
        "127.0.0.1",
        0,
        is_master=True,
        timeout=_left(deadline_ns),
    )
    published = published_store.PublishedStore(
        host="127.0.0.1", port=store.port, nonce=published_store.new_nonce(), writer=me
    )
    store.set(_NONCE_KEY, published.nonce)
    published_store.publish(path, published)
    return OpenStore(
        store=store, is_host=True, release=lambda: published_store.withdraw(path, published)
    )


def _find_spot(
    meeting: JoinPlan, path: str, me: ProcessIdentity, deadline_ns: int, look: Callable[[], None]
) -> OpenStore:
    started_ns = time.monotonic_ns()
    look_ns = started_ns + _LOOK_NS
    pause_s = _POLL_S
    trouble = "rank 0 has published no address"
    while time.monotonic_ns() < deadline_ns:
        published = published_store.read_if_alive(path, me)
        if published is not None:
            attempt_ns = min(deadline_ns, time.monotonic_ns() + int(_ATTEMPT_S * 1e9))
            try:
                return _connect_spot(published, attempt_ns)
            except DistError as error:
                # The run that wrote this is just ending, or its rank 0 is: look again.
                trouble = str(error).splitlines()[0]
        current_context().control.check(op="a wait for rank 0")
        if time.monotonic_ns() >= look_ns:
            look()
            look_ns = time.monotonic_ns() + _LOOK_NS
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _POLL_LIMIT_S)
    raise _not_reached(meeting, started_ns, trouble)


def _connect_spot(published: published_store.PublishedStore, deadline_ns: int) -> OpenStore:
    from distdbg.runtime.store import TCPStore

    store = TCPStore(
        published.host,
        published.port,
        timeout=_left(deadline_ns),
    )
    if store.get(_NONCE_KEY).decode() != published.nonce:
        raise DistStoreError(
            f"the store at port {published.port} is not the one that was published"
        )
    return OpenStore(store=store, is_host=False)


def _refused(meeting: JoinPlan, error: NotAuthenticatedError) -> RendezvousError:
    return RendezvousError(
        f"rank {meeting.rank} cannot join at {meeting.where}: it and the store there have different tokens "
        "(DISTDBG_TOKEN)",
        missing=[0],
        expected=meeting.world_size,
        details=[error.what, *error.details],
        hint=error.hint,
    )


def add_refused(error: RendezvousError, reached: OpenStore) -> None:
    """Say to the rank that serves the store who was refused there."""
    count, last = getattr(reached.store, "refused", lambda: (0, ""))()
    if count:
        times = "once" if count == 1 else f"{count} times"
        why = getattr(reached.store, "why_refused", lambda: "")()
        error.details.append(
            f"the store refused a client {times}, last from {last}: {why or 'other token'}"
        )
        if why:
            return
        error.hint = "give all ranks the same DISTDBG_TOKEN (or DISTDBG_TOKEN_FILE)"


def add_hidden(error: RendezvousError, reached: OpenStore) -> None:
    """Say to the rank that serves the store, where ranks are missing, that other hosts cannot reach it."""
    address = getattr(reached.store, "hidden_at", lambda: "")()
    if not address or not error.missing:
        return
    host = getattr(reached.store, "host", "this host")
    error.details.append(
        f"the store listens on {address}, which is what {host!r} means on this host"
    )
    error.hint = (
        f"{address} can be reached from this host alone: for ranks on other hosts give rank 0's address in "
        f"place of its name, or take {host} off the line of {address} in /etc/hosts"
    )


def _not_reached(meeting: JoinPlan, started_ns: int, trouble: str) -> RendezvousError:
    from distdbg.runtime.store.listen import is_loopback

    waited_s = (time.monotonic_ns() - started_ns) / 1e9
    details = [trouble]
    place = meeting.place
    first_host = place.hosts[0] if place is not None and place.hosts else None
    match meeting.where:
        case AtAddress(host=host, by_launcher=True):
            return RendezvousError(
                f"rank {meeting.rank} did not reach the store of its launcher at {meeting.where} "
                f"within {duration_text(waited_s)}",
                expected=meeting.world_size,
                details=details,
                hint=f"check that the launcher on {host} is running and that this host can reach it",
            )
        case AtAddress(host=host):
            details.append(f"rank 0 is expected on host {first_host or host}")
            if "refused" in trouble.lower() and not is_loopback(host):
                details.append(
                    f"refused there also when {host!r} is 127.0.1.1 for rank 0 itself (/etc/hosts of Debian)"
                )
        case _:
            details.append("rank 0 is expected on this host")
    return RendezvousError(
        f"rank {meeting.rank} did not reach rank 0 at {meeting.where} within {duration_text(waited_s)}; "
        "rank 0 should be listening there",
        missing=[0],
        expected=meeting.world_size,
        details=details,
        hint="look at the output of rank 0: did it start, and can this host reach it",
    )


def _left(deadline_ns: int) -> timedelta:
    return timedelta(seconds=max((deadline_ns - time.monotonic_ns()) / 1e9, 0.001))
