"""init_process_group: the beginning of a World's groups; destroy.py is their end.

Each init is a round of its own on the store where the ranks meet (`rendezvous/`), so after destroy
the same store serves again, any number of times.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from distdbg.errors import UsageError, WrongTypeError
from distdbg.log.logs import get_logger
from distdbg.record.join_note import noted_join
from distdbg.runtime.api import subgroups as subgroups  # a group's own split_group needs it
from distdbg.runtime.api.integers import to_ints, to_place
from distdbg.runtime.backends.registry import (
    Backend,
    BackendConfig,
    check_available,
    is_over_mpi,
)
from distdbg.runtime.groups.creation import create_group, timeout_seconds
from distdbg.runtime.groups.levels import prepare, tell_if_off
from distdbg.runtime.latent_errors.search import begin_latent
from distdbg.runtime.members.member_liveness import MemberProcess, NewGroupMembers
from distdbg.runtime.process.agent_start import start_agent
from distdbg.runtime.process.control_page import follow_launcher, unfollow_control
from distdbg.runtime.process.debuggable import open_to_debuggers
from distdbg.runtime.process.debugger_seam import check_stops, end_stops, start_stops
from distdbg.runtime.process.destroy import leave_membership
from distdbg.runtime.process.exit_reason import ExitNote, tell_launcher_of_errors
from distdbg.runtime.process.stack_signal import install_stack_signal, remove_stack_signal
from distdbg.runtime.process.world import current
from distdbg.runtime.recorder.recording import start_recording
from distdbg.runtime.recorder.torch_profiler import look_for_torch
from distdbg.runtime.rendezvous import join
from distdbg.runtime.store import Store

default_pg_timeout = timedelta(minutes=30)

#: Without which no ranks can meet.
_STORE_METHODS = ("set", "get", "add", "wait", "check", "compare_set", "delete_key")

_log = get_logger("runtime")


def is_available() -> bool:
    """Return True: the package is here."""
    return True


def is_initialized() -> bool:
    """Return whether the default group exists."""
    return current().default is not None


def is_torchelastic_launched() -> bool:
    """Return whether torchrun or one of its kind started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any | None = None,
    device_id: Any | None = None,
    _ranks: list[int] | None = None,
) -> None:
    """Make the default group of all ranks; returns when all are there.

    Where the ranks meet: `store`, or `init_method` (a URL), or the environment (`env://`), which
    also knows the ranks of MPI and Slurm.
    """
    world = current()
    if world.default is not None:
        raise UsageError(
            "init_process_group was called twice",
            hint="call destroy_process_group before initializing again",
        )
    tell_launcher_of_errors()
    look_for_torch()
    prepare(world)
    check_stops()
    backend_config = BackendConfig(Backend(backend or "undefined"))
    check_available(backend_config)
    timeout_s = timeout_seconds(timeout)
    rank, world_size = to_place("rank", rank), to_place("world_size", world_size)
    ranks = None if _ranks is None else to_ints("init_process_group", "_ranks", _ranks)
    _check_types(init_method, store, group_name)
    if store is not None:
        _check_store_arguments(init_method, world_size, rank)
    follow_launcher(world)
    try:
        with noted_join(init_method, world_size=world_size, rank=rank, has_store=store is not None):
            if is_over_mpi(backend_config):
                from distdbg.runtime.backends.mpi.joining import join_over_mpi

                membership = join_over_mpi(
                    init_method,
                    rank=rank,
                    world_size=world_size,
                    timeout_s=timeout_s,
                    store=store,
                    clock=world.control,
                )
            else:
                membership = join(
                    init_method or "env://",
                    rank=rank,
                    world_size=world_size,
                    timeout_s=timeout_s,
                    store=store,
                )
    except BaseException:
        unfollow_control(world)
        raise
    try:
        size = membership.world_size
        if ranks is not None and len(ranks) != size:
            raise UsageError(f"_ranks has {len(ranks)} ranks, world_size is {size}")
        membership.store.set_timeout(timedelta(seconds=timeout_s))
        host = membership.members[membership.rank].host
        me = membership.members[membership.rank].process
        world.ranks_here = sum(member.host == host for member in membership.members)
        lives = [MemberProcess(member.process, me) for member in membership.members]
        run = start_recording(
            world,
            membership.store,
            NewGroupMembers(group_name or "0", range(size), lives),
            membership.rank,
            size,
            timeout_s,
        )
        install_stack_signal(world, membership.rank)
        start_agent(membership, world.run_folder, run)
        start_stops(world, membership.rank)
        begin_latent(world, membership.rank)
        world.default = create_group(
            world,
            membership.store,
            name=group_name or "0",
            desc="default_pg",
            ranks=range(size) if ranks is None else ranks,
            rank=membership.rank,
            backend=backend_config,
            timeout_s=timeout_s,
            pg_options=pg_options,
            device_id=device_id,
            have_met=True,
            members=lives,
        )
        tell_if_off(world, membership.rank)
    except BaseException:
        world.unwaited = world.abandoned = None
        end_stops(world)
        unfollow_control(world)
        remove_stack_signal(world)
        leave_membership(membership, is_own=store is None)
        raise
    world.membership = membership
    world.exit_note = ExitNote(world)
    world.owns_store = store is None
    world.group_count = 1
    open_to_debuggers(world)


def _check_types(init_method: object, store: object, group_name: object) -> None:
    """Also stores that are no subclass of ours serve, torch's for one: they have the same methods."""
    wrong = ""
    if init_method is not None and not isinstance(init_method, str):
        wrong = f"init_method must be a URL as text, not {init_method!r:.80}"
    elif store is not None and not all(callable(getattr(store, n, None)) for n in _STORE_METHODS):
        wrong = f"store must be a Store, not {store!r:.80}"
    elif not isinstance(group_name, str):
        wrong = f"group_name must be text, not {group_name!r:.80}"
    if wrong:
        raise WrongTypeError(f"init_process_group: {wrong}")


def _check_store_arguments(init_method: str | None, world_size: int, rank: int) -> None:
    if init_method is not None:
        raise UsageError("init_process_group: give init_method or store, not both")
    if world_size < 1:
        raise UsageError(
            f"init_process_group: world_size must be 1 or more with a store, got {world_size}"
        )
    if not 0 <= rank < world_size:
        raise UsageError(
            f"init_process_group: rank must be from 0 to {world_size - 1} with a store, got {rank}"
        )
