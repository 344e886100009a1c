from __future__ import annotations

import json

import pytest

from distdbg.follow.merge import MergedStack, merge, render
from distdbg.follow.stacks import (
    RankStacks,
    StackFrame,
    ThreadStack,
    find_site,
    read_faulthandler,
    read_py_spy,
)

FAULT = """Thread 0x00007f0001 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/home/ada/load.py", line 9 in fetch

Current thread 0x00007f0002 [MainThread] (most recent call first):
  File "/home/ada/a b, line 3 in c.py", line 88 in step
  File "<stdin>", line ??? in <module>
"""


def spy(**facts: object) -> dict[str, object]:
    frames = [
        {"name": "usleep", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0},
        {"name": "step", "filename": "/home/ada/train.py", "module": None, "line": 88},
        {"name": "main", "filename": "/lib/libc.so.6", "module": "/lib/libc.so.6", "line": 0},
    ]
    return {
        "os_thread_id": 7,
        "thread_name": "MainThread",
        "owns_gil": True,
        "frames": frames,
    } | facts


def test_py_spy_threads_have_their_frames_without_the_start_of_the_process() -> None:
    (found,) = read_py_spy(json.dumps([spy()]).encode(), 7)
    assert found.is_main
    assert found.holds_gil
    assert [frame.function for frame in found.frames] == ["usleep", "step"]
    assert [frame.function for frame in found.inner] == ["usleep"]
    assert [str(frame) for frame in found.frames] == ["usleep (libc.so.6)", "train.py:88 (step)"]


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"nonsense", b"\xff"])
def test_what_py_spy_never_prints_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_py_spy(text, 7)


def test_faulthandler_names_the_main_thread_last() -> None:
    other, main = read_faulthandler(FAULT)
    assert (other.is_main, main.is_main, main.name) == (False, True, "MainThread")
    assert main.frames[0] == StackFrame("step", "/home/ada/a b, line 3 in c.py", 88)
    assert main.frames[1].line == 0
    assert [frame.function for frame in other.frames] == ["wait", "fetch"]


@pytest.mark.parametrize("end", range(0, len(FAULT), 7))
def test_half_of_what_faulthandler_writes_is_read_as_far_as_it_goes(end: int) -> None:
    assert len(read_faulthandler(FAULT[:end])) <= 2


def test_a_site_is_a_line_of_the_program_where_there_is_one() -> None:
    library = StackFrame("match", "/usr/lib/python3.11/re/__init__.py", 166)
    package = StackFrame("load", "/env/lib/python3.11/site-packages/torch/x.py", 1)
    own = StackFrame("run", "/src/distdbg/runtime/groups/group.py", 5)
    program = StackFrame("step", "/home/ada/train.py", 88)
    assert find_site((library, package, own, program), "/src/distdbg") == program
    assert find_site((library, package), "/src/distdbg") == library
    assert find_site((), "/src/distdbg") is None


def rank(number: int, *frames: StackFrame, **facts: bool) -> RankStacks:
    threads = (ThreadStack(frames, name="MainThread", is_main=True, **facts),)
    return RankStacks(rank=number, pid=number, threads=threads, how="py-spy")


def test_equal_stacks_are_one_with_the_ranks_that_have_them() -> None:
    waits = StackFrame("wait", "/a/group.py", 1)
    works = StackFrame("step", "/a/train.py", 88)
    found = merge([rank(n, waits) for n in (0, 1, 2, 5)] + [rank(3, works, holds_gil=True)])
    assert [stack.ranks for stack in found] == [(0, 1, 2, 5), (3,)]
    assert render(found, [(4, "its process is gone"), (6, "its process is gone")]) == [
        "ranks 0-2,5: MainThread",
        "  group.py:1 (wait)",
        "rank 3: MainThread, holds the GIL",
        "  train.py:88 (step)",
        "ranks 4,6: no stacks: its process is gone",
    ]
    assert [MergedStack.from_plain(json.loads(json.dumps(s.to_plain()))) for s in found] == found


def test_addresses_do_not_make_stacks_different() -> None:
    def at(address: int) -> StackFrame:
        return StackFrame(hex(address), "/lib/libc.so.6", 0, is_native=True)

    line = StackFrame("step", "/a/train.py", 88)
    found = merge([rank(0, at(16), at(32), line), rank(1, at(48), at(64), line)])
    assert [(stack.ranks, len(stack.frames)) for stack in found] == [((0, 1), 2)]


def test_threads_of_a_pool_are_counted_not_repeated() -> None:
    idle = StackFrame("get", "/a/queue.py", 1)
    threads = tuple(ThreadStack((idle,), name=f"Thread-{n}") for n in range(1, 13))
    found = merge([RankStacks(rank=r, pid=r, threads=threads, how="py-spy") for r in (0, 1)])
    assert [(stack.ranks, stack.thread_count) for stack in found] == [((0, 1), 24)]
    assert render(found)[0] == "ranks 0-1: Thread-1 and similar ones (24 threads)"


def test_nothing_of_a_stack_steers_a_terminal() -> None:
    lines = render(merge([rank(0, StackFrame("\x1b[31mred", "/a/\x07b.py", 1))]))
    assert all(line.isprintable() for line in lines)


def test_the_frames_of_a_debugger_are_one_line() -> None:
    def ours(name: str) -> StackFrame:
        return StackFrame("f", f"/lib/distdbg/debugger/{name}", 1)

    program = StackFrame("step", "/train.py", 8)
    lock = StackFrame("PyThread_acquire_lock", "libpython3.11.so", 0, is_native=True)
    loop = StackFrame("cmdloop", "/usr/lib/python3.11/pdb.py", 2)
    call = StackFrame("breakpoint", "/lib/distdbg/debugger/breakpoint.py", 75)
    prompt = (lock, ours("desk.py"), loop, ours("rank_pdb.py"), call, program)
    waits = (lock, ours("breakpoint.py"), call, program)
    plain = (lock, program, StackFrame("run", "/usr/lib/python3.11/pdb.py", 2))
    found = merge(
        RankStacks(rank=rank, pid=rank, threads=(ThreadStack(frames=frames, is_main=True),))
        for rank, frames in enumerate((prompt, waits, plain))
    )
    assert [[str(frame) for frame in one.frames] for one in found] == [
        ["at a prompt of the debugger", "train.py:8 (step)"],
        ["breakpoint.py:75 (breakpoint)", "train.py:8 (step)"],
        ["PyThread_acquire_lock (libpython3.11.so)", "train.py:8 (step)", "pdb.py:2 (run)"],
    ]
