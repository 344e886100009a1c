"""One process of a torch job, watched: from torch's first group to the end of its last.

entry.py    torch makes or destroys a group
world.py    a World of ours beside torch's groups: record, agent, control groups
tap/        its ops
training/   what DDP, FSDP and optimizers know of them
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from distdbg.errors import JobAborted, MismatchError, PeerLost, RendezvousError
from distdbg.ops.sites import warn_at_call_site
from distdbg.runtime.groups.levels import level_of
from distdbg.torch_bridge.call_sites import skip_torch
from distdbg.torch_bridge.guarded import guarded, switch_off
from distdbg.torch_bridge.tap.engine import TorchGroupEngine
from distdbg.torch_bridge.tap.groups import TappedGroup, TappedGroups
from distdbg.torch_bridge.tap.install import Tap
from distdbg.torch_bridge.tap.sockets import new_since, open_sockets
from distdbg.torch_bridge.tap.supported import check_torch
from distdbg.torch_bridge.training import patch as patch_training
from distdbg.torch_bridge.world import WatchingWorld

#: Backends that have nobody at the other end, or no store in which ranks could meet.
_NOT_WATCHED = ("fake", "mpi", "undefined")
#: What is raised by the making of a group because of what other ranks do, and not because of us.
_VERDICTS = (MismatchError, PeerLost, RendezvousError, JobAborted)


class TorchJob:
    """All that we know of it; made with torch's first group."""

    def __init__(self) -> None:
        import torch
        import torch.distributed as dist

        check_torch(torch)
        skip_torch(torch)
        self._torch = torch
        self._dist = dist
        self._c10d = sys.modules["torch.distributed.distributed_c10d"]
        self._groups = TappedGroups()
        self._groups.on_asked_to_stop = switch_off
        self._watching: WatchingWorld | None = None
        self._tap = Tap(torch, self._groups)
        self._sockets: dict[int, int] = {}
        self._signature: inspect.Signature | None = None

    def before_group(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Torch is about to make one."""
        self._sockets = open_sockets()
        dist = self._dist
        if dist.get_debug_level() != dist.DebugLevel.DETAIL:
            return
        # Its own comparison wraps gloo in a way that takes DDP down with it, and costs milliseconds per op.
        dist.set_debug_level(dist.DebugLevel.INFO)
        warn_at_call_site(
            "TORCH_DISTRIBUTED_DEBUG=DETAIL: distdbg compares the ops instead of torch, whose own comparison "
            "makes DDP on gloo crash",
            RuntimeWarning,
        )

    def compare_group(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise where ranks are about to make different groups: torch would wait for the ones it has in mind.

        All ranks call new_group, members or not; with use_local_synchronization, whose names are no numbers,
        members alone.
        """
        watching = self._watching
        if watching is None or level_of(watching.world).value == 0:
            return
        with guarded("a group", but=_VERDICTS):
            given = self._arguments(args, kwargs)
            ranks, name = list(given["global_ranks_in_group"]), str(given["group_name"])
            if ranks and name.isdigit():
                timeout = given.get("timeout") or self._c10d.default_pg_timeout
                watching.compare(ranks, name, timeout.total_seconds())

    def on_group(self, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Torch has made one: make what is beside it. A member that has died since is told."""
        with guarded("a group", but=_VERDICTS):
            self._make_beside(made, args, kwargs)

    def _make_beside(self, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        group, store = made
        if group == self._dist.GroupMember.NON_GROUP_MEMBER or store is None:
            return
        given = self._arguments(args, kwargs)
        if type(group) is not self._dist.ProcessGroup:
            return  # a group of Python's, whose ops do not pass torch's dispatcher
        name = str(given["backend"]).lower()
        if any(word in name for word in _NOT_WATCHED):
            return
        theirs = TorchGroupEngine(group, new_since(self._sockets))
        ranks = list(given["global_ranks_in_group"])
        timeout = given.get("timeout") or self._c10d.default_pg_timeout
        if not ranks:
            self._watching = WatchingWorld.begin(
                theirs, store, backend=name, timeout_s=timeout.total_seconds()
            )
            made_beside = self._watching.group if self._watching is not None else None
        elif self._watching is None:
            return
        else:
            made_beside = self._watching.add(
                theirs,
                ranks,
                backend=name,
                desc=given.get("group_desc") or "",
                timeout_s=timeout.total_seconds(),
            )
        if made_beside is not None:
            self._tap.start()
            patch_training(self._torch)
            self._groups.add(theirs, made_beside)

    def on_destroy(self, group: Any) -> None:
        """Torch is about to destroy one, or all."""
        if self._watching is None:
            return
        default = self._dist.group.WORLD
        if group is None or group is default:
            watching, self._watching = self._watching, None
            self._groups.drain()
            self._groups.clear()
            watching.end()
            return
        tapped = self._groups.remove(group)
        if tapped is None:
            return
        try:
            tapped.drain()
            self._watching.remove(tapped.group)
        except BaseException as error:
            tapped.stop_watching(f"the end of a group: {type(error).__name__}")
            raise

    def on_monitored_barrier(
        self, group: Any, timeout: Any, wait_all_ranks: bool, function: Callable[[], Any]
    ) -> Any:
        """Ours goes first: it tells all ranks who is missing, and where."""
        tapped = self._groups.of(group if group is not None else self._dist.group.WORLD)
        if tapped is None:
            return function()
        return tapped.monitored_barrier(timeout, wait_all_ranks, function)

    def stop(self, why: str) -> None:
        """Let all ops pass, here and on the other ranks."""
        if self._watching is not None:
            self._watching.tell_off(why)
        self._groups.stop(why)

    def tapped(self) -> list[TappedGroup]:
        """The groups that are watched."""
        return self._groups.all()

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._signature is None:
            self._signature = inspect.signature(self._c10d._new_process_group_helper)
        return dict(self._signature.bind(*args, **kwargs).arguments)
