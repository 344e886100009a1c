"""The record of this rank: begun by init_process_group, ended with the process.

One run, one folder, one file per rank. A rank that cannot write there goes on without: its record is
then in memory, where its own messages still find what they need, and one warning says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distdbg import config
from distdbg.log.logs import get_logger
from distdbg.native import NativeError, Recorder
from distdbg.ops.sites import skipped_folders
from distdbg.record import folders
from distdbg.record.format import Exit
from distdbg.record.holes import give_back
from distdbg.record.writing import make_recorder, write_exit
from distdbg.runtime.members.member_liveness import NewGroupMembers
from distdbg.runtime.process.control_page import follow_control, unfollow_control
from distdbg.runtime.process.uncaught import know_run
from distdbg.runtime.recorder.trace_context import API, TraceContext, names_traces

if TYPE_CHECKING:
    from distdbg.runtime.process.world import World
    from distdbg.runtime.store import Store

_log = get_logger("record")

_RUN_KEY = "run"
#: More would make files that no reader takes; native code rounds the number.
_MAX_OPS = 1 << 18


def start_recording(
    world: World, store: Store, lives: NewGroupMembers, rank: int, world_size: int, timeout_s: float
) -> str:
    """Begin this rank's record and return the run's name, which all ranks take from rank 0."""
    if config.read_setting("DISTDBG_UNWRAPPED"):
        return ""
    name = folders.read_run_name() if rank == 0 else ""
    with lives.blamed():
        if rank == 0:
            store.set(_RUN_KEY, name)
        lives.wait(store, _RUN_KEY, timeout_s)
        run = store.get(_RUN_KEY).decode()
    ring_count = min(config.read_int("DISTDBG_RECORD_OPS"), _MAX_OPS)
    path, why = folders.place_record(run, rank)
    recorder: Recorder | None = None
    if path is not None:
        try:
            recorder = make_recorder(
                path, rank=rank, world_size=world_size, run=run, ring_count=ring_count
            )
        except NativeError as error:
            path, why = None, f"{path}: {error}"
    if recorder is None:
        _log.warning("this rank continues without a record: %s", why, rank=rank)
        recorder = make_recorder(
            None, rank=rank, world_size=world_size, run=run, ring_count=ring_count
        )
    for folder in skipped_folders()[1:]:
        recorder.skip_folder(folder)
    world.recorder = recorder
    world.run_folder = None if path is None else path.parent
    know_run(rank, world.run_folder)
    world.mark_forms.clear()
    if names_traces(config.read_setting("DISTDBG_OTLP")):
        recorder.set_context_source(TraceContext(recorder.ring_count, rank), API)
    if world.run_folder is not None:
        follow_control(world, world.run_folder, run, rank)
    return run


def end_recording(world: World, how: Exit, error: BaseException | None = None) -> None:
    """Write how far the rank has come; what comes after an exception is a consequence of it."""
    if how is Exit.LEFT:
        unfollow_control(world)
    recorder = world.recorder
    if recorder is None:
        return
    if not recorder.has_raised:
        write_exit(recorder, how, error)
    if how is Exit.LEFT:
        world.recorder = None
        world.run_folder = None
        world.mark_forms.clear()
        if recorder.path is not None and not recorder.is_forked:
            give_back(recorder.path)
