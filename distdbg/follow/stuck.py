"""The state of a rank that is alive and reaches no op, from two looks at it. Pure.

    uninterruptible in both looks                                     BLOCKED_IO
    its innermost frames are ours, waiting                            WAITING
    Python collects garbage                                           RUNNING
    one thread owns the GIL in both, in one and the same call
      that is not Python's own loop                                   HOLDS_GIL
    uses its CPU, and Python moves                                    BUSY
    uses no CPU: in a lock, a system call, a sleep                    ASLEEP
    anything else: computes in C, writes                              RUNNING

Without py-spy nobody knows who owns the GIL, nor what lies below Python: then the same line in both
looks while a core burns counts as one call, which a long computation in a library is as well. Of an
interpreter without symbols (Debian's) py-spy shows no C functions: a call that stays in those, as a regular
expression does, is BUSY there.
"""

from __future__ import annotations

import linecache
import os
import threading
from dataclasses import dataclass
from typing import Final

from distdbg.follow.processes import MainThread
from distdbg.follow.stacks import RankStacks, StackFrame, ThreadStack, find_site
from distdbg.record.libraries import is_library
from distdbg.record.observations import (
    CHILD_END,
    DATA_FROM,
    DEAD_CHILD,
    FILE_LOCK,
    IN_LIBRARY,
    IN_LOCK,
    LOCKED_CHILDREN,
    NO_OTHER_THREAD,
    OTHER_THREAD,
    STORE_KEY,
)
from distdbg.record.rank_state import RankState

#: What counts as burning its core; ranks may have to share one.
_BURNS: Final = 0.3
_IDLE: Final = 0.05
#: Threads that are named beside the main one.
_MAX_OTHERS: Final = 2
#: Where the kernel lets a process wait in flock, lockf and fcntl.
FILE_LOCKS: Final = frozenset(("flock_lock_inode_wait", "locks_lock_inode_wait", "fcntl_setlk"))
#: The line of `threading` where one waits for another thread without a limit.
_WITHOUT_LIMIT: Final = ("waiter.acquire()",)
#: Functions of the standard library that wait for a lock and nothing else.
_TAKES_LOCK: Final = frozenset(("__enter__", "acquire"))

#: The modules in which one waits for what processes of its own work on.
_OF_WORKERS: Final = ("of pool.py", "of _base.py")
#: Methods of a store that wait until a key is there.
_KEY_WAITS: Final = ("get", "wait")


@dataclass(frozen=True, slots=True)
class Look:
    at_ns: int
    letter: str
    """Its state as ps shows it."""
    cpu_s: float
    thread: MainThread | None
    stacks: RankStacks | None
    lock_holder: str = ""
    """The holder of the file lock that it waits for: 'rank 3', 'pid 812 (rsync)'; '': not known."""
    dead_child: str = ""
    """'4711 (loader) was killed by SIGSEGV'; ''."""
    awaited_child: str = ""
    """'4711 (sort), which sleeps (pipe_read)': of a process that waits for the end of one; ''."""
    sender: str = ""
    """The sender of what it reads: 'rank 0 (127.0.0.1:38211)'; '' where it reads from no connection."""
    are_children_locked: bool = False
    """Whether all of its child processes wait for locks."""


@dataclass(frozen=True, slots=True)
class StuckJudgement:
    """What the looks say."""

    state: RankState
    why: str = ""
    site: str = ""
    is_busy: bool = False
    """Whether it burns its core."""
    is_unsure: bool = False
    """It burns on one line, and py-spy has seen no owner of the GIL, which it does not always."""


def judge(first: Look, second: Look, own_package: str) -> StuckJudgement:
    """What a rank does that has made no progress between the looks; `own_package`: distdbg's folder."""
    main = _main(second)
    site_frame = find_site(main.frames, own_package) if main else None
    site = str(site_frame) if site_frame else ""
    if first.letter == second.letter == "D":
        return StuckJudgement(RankState.BLOCKED_IO, describe_block(second.thread), site)
    if main is not None and _is_ours(main, own_package):
        if _waits_for_key(main, own_package):
            return StuckJudgement(RankState.ASLEEP, STORE_KEY, site)
        return StuckJudgement(RankState.WAITING, site=site)
    burn = (second.cpu_s - first.cpu_s) / max((second.at_ns - first.at_ns) / 1e9, 1e-3)
    # On a host with more to do than cores a rank that burns gets little; but it always wants more.
    is_busy = burn >= _BURNS or (first.letter == second.letter == "R" and burn > _IDLE)
    if _is_collecting(second):
        return StuckJudgement(RankState.RUNNING, "collects garbage", site, is_busy)
    held = _hold(first, second, is_busy)
    if held is not None:
        holder = _holder(second) or main
        frame = find_site(holder.frames, own_package) if holder else None
        is_at_work = burn > _IDLE or "R" in (first.letter, second.letter)
        return StuckJudgement(RankState.HOLDS_GIL, held, str(frame) if frame else site, is_at_work)
    if is_busy:
        unseen = _is_holder_unseen(first, second)
        if _python_moves(first, second):
            why = "computes, and calls no op"
            return StuckJudgement(RankState.BUSY, why, site, is_busy, unseen)
        return StuckJudgement(RankState.RUNNING, "on CPU, in C code", site, is_busy, unseen)
    if burn <= _IDLE and first.letter == second.letter == "S":
        why = _sleep(first, second)
        if why.startswith(IN_LOCK):
            library = _library_of(main)
            why += library
            if main is not None and library and _is_alone(main, second):
                why += NO_OTHER_THREAD
            are_locked = first.are_children_locked and second.are_children_locked
            if are_locked and library.endswith(_OF_WORKERS):
                why += LOCKED_CHILDREN
            why += _others(first, second, own_package, with_libraries=bool(library))
        if why.startswith(FILE_LOCK) and second.lock_holder:
            why = f"{FILE_LOCK} that {second.lock_holder} holds{why.removeprefix(FILE_LOCK)}"
        if second.sender and first.sender == second.sender:
            why = DATA_FROM + second.sender
        if first.awaited_child and second.awaited_child:
            why = CHILD_END + second.awaited_child
        if second.dead_child:
            why += DEAD_CHILD + second.dead_child
        return StuckJudgement(RankState.ASLEEP, why, site)
    return StuckJudgement(RankState.RUNNING, "at work in its own code", site)


def describe_block(thread: MainThread | None) -> str:
    """'in the kernel at nfs_wait_bit_killable'."""
    where = thread.wchan if thread else ""
    return f"in the kernel at {where}" if where else "in the kernel"


def _main(look: Look) -> ThreadStack | None:
    return look.stacks.main if look.stacks else None


def _holder(look: Look) -> ThreadStack | None:
    return look.stacks.gil_holder if look.stacks else None


def _is_collecting(look: Look) -> bool:
    """Whether it is one call that always returns."""
    holder = _holder(look)
    return holder is not None and any(f.function.startswith("gc_collect") for f in holder.inner)


def _is_ours(thread: ThreadStack, own_package: str) -> bool:
    """Whether the rank waits in distdbg itself: for an op begun earlier, the store, the others."""
    python = thread.python
    return bool(python) and python[0].file.startswith(own_package) and not thread.holds_gil


def _waits_for_key(thread: ThreadStack, own_package: str) -> bool:
    """Whether the program itself has called `get` or `wait` of a store: not the making of a group."""
    python = thread.python
    own = [frame for frame in python if frame.file.startswith(own_package)]
    called = own[-1] if own and python[: len(own)] == tuple(own) else None
    if called is None or called.function.rpartition(".")[2] not in _KEY_WAITS:
        return False
    return os.path.join("runtime", "store", "") in called.file.removeprefix(own_package)


def _hold(first: Look, second: Look, is_busy: bool) -> str | None:
    """How one thread keeps the GIL from all others; None: it does not, as far as is known."""
    if first.stacks is None or second.stacks is None:
        return None
    if first.stacks.how == "py-spy" and second.stacks.how == "py-spy":
        before, now = first.stacks.gil_holder, second.stacks.gil_holder
        if before is None or now is None or before.thread_id != now.thread_id:
            return None
        if _line(before) != _line(now):
            return None
        who = "" if now.is_main else f"thread {now.name or now.thread_id}: "
        call = next((f.function for f in now.inner if not f.function.startswith("0x")), "")
        if second.stacks.has_native:
            if not now.inner:
                return None  # Python's own loop lets others have it every few milliseconds
            return f"{who}one call that does not return{f' ({call})' if call else ''}"
        if not now.is_active or not before.is_active or is_busy:
            return f"{who}one call that does not return"
        return None
    before, now = _main(first), _main(second)
    if before is None or now is None or not is_busy or not before.frames:
        return None
    return (
        "on the same line, in a call that does not return" if _line(before) == _line(now) else None
    )


def _line(thread: ThreadStack) -> tuple[StackFrame, ...]:
    return thread.python[:1]


def _python_moves(first: Look, second: Look) -> bool:
    before, now = _main(first), _main(second)
    if before is None or now is None:
        return True  # nothing is known but that it burns
    if before.frames != now.frames:
        return True
    return now.holds_gil is not False and not now.inner


def _is_holder_unseen(first: Look, second: Look) -> bool:
    before, now = _main(first), _main(second)
    if before is None or now is None or before.python != now.python:
        return False
    return _holder(first) is None or _holder(second) is None


def _library_of(main: ThreadStack | None) -> str:
    """', in Queue.get() of queue.py': the program's call into a library that waits; '' for a lock itself."""
    python = main.python if main is not None else ()
    own = next((at for at, frame in enumerate(python) if not is_library(frame.file)), 0)
    called = python[own - 1] if own else None
    if called is None or called.function.rpartition(".")[2] in _TAKES_LOCK:
        return ""
    return f", in {called.function}{IN_LIBRARY}{os.path.basename(called.file)}"


def _is_alone(main: ThreadStack, look: Look) -> bool:
    """Whether it waits for another thread, and none of them does anything; processes have other queues."""
    if look.stacks is None or main.python[0].file != threading.__file__:
        return False
    others = (one for one in look.stacks.threads if not one.is_main and one.python)
    return all(_waits_for_ever(one) for one in others)


def _waits_for_ever(thread: ThreadStack) -> bool:
    """Whether it waits for another thread of the process, and without a limit, in `threading`."""
    frame = thread.python[0]
    if thread.holds_gil or thread.is_active or frame.file != threading.__file__:
        return False
    return linecache.getline(frame.file, frame.line).strip() in _WITHOUT_LIMIT


def _others(first: Look, second: Look, own_package: str, *, with_libraries: bool) -> str:
    """'; its thread 'saver' is at b.py:3 (save)': threads that wait in lines of the program themselves.

    One of them may hold the lock, and wait for another one. A thread that waits in a library, for its queue
    say, has nothing to do; but a rank that waits for a queue itself may wait for just that thread.
    """
    before = {} if first.stacks is None else {one.thread_id: one for one in first.stacks.threads}
    found = []
    for thread in () if second.stacks is None else second.stacks.threads:
        earlier = before.get(thread.thread_id)
        is_idle = not (thread.is_main or thread.holds_gil or thread.is_active)
        if not is_idle or earlier is None or not thread.python or _line(earlier) != _line(thread):
            continue
        library = _library_of(thread) if with_libraries else ""
        frame = find_site(thread.python, own_package) if library else thread.python[0]
        if frame and not frame.file.startswith(own_package) and not is_library(frame.file):
            name = thread.name or str(thread.thread_id)
            found.append(f"{OTHER_THREAD}{name!r} is at {frame}{library}")
    return "".join(found[:_MAX_OTHERS])


def _sleep(first: Look, second: Look) -> str:
    """What it waits for; '' where that is not known."""
    before, now = first.thread, second.thread
    if before is None or now is None or now.state != "S":
        return ""
    if before.syscall != now.syscall or before.wchan != now.wchan:
        return "wakes up now and then"
    again = now.voluntary - before.voluntary > 2
    if now.is_nap:
        return (
            "in a loop of short sleeps" if again else "in time.sleep, or a wait with a time limit"
        )
    limited = " with a time limit" if now.has_timeout else ""
    if now.wchan.startswith("futex") or now.is_futex:
        # A lock that is tried again and again: each try is a switch.
        return (
            "blocked on a lock, tried again and again" if again else f"blocked on a lock{limited}"
        )
    if now.wchan in FILE_LOCKS:
        return f"{FILE_LOCK}{limited}"
    return f"in a system call ({now.wchan}){limited}" if now.wchan else ""
