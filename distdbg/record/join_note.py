"""What a rank notes of its call of init_process_group, torch's or ours, for those that look on.

    with noted_join(init_method, world_size=6, rank=-1, has_store=False):
        ...                      # the ranks meet
        note_connected()         # this one has reached the store

A note that cannot be written is left out. In a process that notes one call already, another one is a part
of it, or of a rank that is a thread.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Final
from urllib.parse import parse_qs, urlsplit

from distdbg.record.host import host_name
from distdbg.record.join_calls import JoinCall, JoinStep, write_join_call
from distdbg.record.libraries import is_library
from distdbg.record.recorded_frame import RecordedFrame

_OWN: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MAX_FRAMES: Final = 8
_MAX_LETTERS: Final = 200

#: The call that this process is in, and where that is noted.
_open: list[tuple[Path, JoinCall]] = []


@contextmanager
def noted_join(
    init_method: object,
    *,
    world_size: object,
    rank: object,
    has_store: bool,
    has_launcher_store: bool = True,
) -> Iterator[None]:
    """In this block the process is in the call; how it ends is noted as well.

    `has_launcher_store`: without an address the ranks meet in the store of their launcher, if it has one.
    """
    folder = _folder(os.environ)
    if folder is None or _open:
        yield
        return
    call = join_call(
        init_method,
        world_size=world_size,
        rank=rank,
        has_store=has_store,
        has_launcher_store=has_launcher_store,
        environ=os.environ,
        stack=_stack(sys._getframe(1)),
    )
    _open[:] = [(folder, call)]
    _write("called")
    try:
        yield
    except BaseException as error:
        _write("failed", f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    else:
        _write("joined")
    finally:
        _open.clear()


def note_connected() -> None:
    """It has reached the store where the ranks meet."""
    if _open and _open[0][1].step == "called":
        _write("connected")


def join_call(
    init_method: object,
    *,
    world_size: object,
    rank: object,
    has_store: bool,
    has_launcher_store: bool,
    environ: Mapping[str, str],
    stack: tuple[RecordedFrame, ...] = (),
) -> JoinCall:
    """What the arguments say, and else the URL and the environment."""
    url = init_method if isinstance(init_method, str) else ""
    query: dict[str, list[str]] = {}
    with suppress(ValueError):
        query = parse_qs(urlsplit(url).query)
    started_rank, started = _number(environ.get("RANK")), read_started(environ)
    where = url.partition("?")[0]
    is_found = where in ("", "env://")
    if has_store or (is_found and has_launcher_store and environ.get("DISTDBG_STORE")):
        where = ""
    elif is_found:
        known = [environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")]
        where = "tcp://{}:{}".format(*known) if all(known) else ""
    return JoinCall(
        rank=started_rank,
        pid=os.getpid(),
        host=host_name(environ),
        since_ns=time.monotonic_ns(),
        wall_ns=time.time_ns(),
        as_rank=_first(rank, query.get("rank", [""])[0], started_rank),
        world_size=_first(world_size, query.get("world_size", [""])[0], started),
        started=started,
        where=where[:_MAX_LETTERS],
        stack=stack,
    )


def _first(*values: object) -> int:
    """The first that is a number, and not -1 for none."""
    return next((number for value in values if (number := _number(value)) >= 0), -1)


def read_started(environ: Mapping[str, str]) -> int:
    """How many ranks the launcher has started; -1: it does not say."""
    return _number(environ.get("WORLD_SIZE"))


def _number(value: object) -> int:
    try:
        return int(value) if isinstance(value, int | str) else -1
    except ValueError:
        return -1


def _folder(environ: Mapping[str, str]) -> Path | None:
    """That of this start, where a launcher names it; another's is left alone."""
    names = [environ.get(name, "") for name in ("DISTDBG_RUN", "DISTDBG_RUN_DIR", "RANK")]
    folder = Path(names[1]).absolute()
    return folder if all(names) and names[2].isdecimal() and folder.is_dir() else None


def _write(step: JoinStep, error: str = "") -> None:
    folder, call = _open[0]
    is_connected = call.is_connected or step in ("connected", "joined")
    call = replace(
        call,
        step=step,
        step_ns=time.monotonic_ns(),
        is_connected=is_connected,
        error=error[:_MAX_LETTERS],
    )
    _open[0] = folder, call
    with suppress(OSError):
        write_join_call(folder, call)


def _stack(frame: FrameType | None) -> tuple[RecordedFrame, ...]:
    """The program's own lines around the call, the innermost first."""
    found: list[RecordedFrame] = []
    while frame is not None and len(found) < _MAX_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN) and not is_library(code.co_filename):
            found.append(RecordedFrame(code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back
    return tuple(found)
