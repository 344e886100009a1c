"""The stack of an op in the record is the one that Python has, in whatever way the program got there."""

from __future__ import annotations

import asyncio
import functools
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import distdbg as dist
from distdbg.native import Recorder
from distdbg.record.reader import read_record

Line = tuple[str, str, int]

#: Of frames, those of this package included; what is further out is not in a record.
MOST_FRAMES = 24
PACKAGE = str(Path(dist.__file__).parent)


def stack_of(frame: FrameType | None) -> list[Line]:
    """As Python has it, without the package's own."""
    lines: list[Line] = []
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith((PACKAGE, "<frozen ")):
            lines.append((code.co_filename, code.co_qualname, frame.f_lineno))
        frame = frame.f_back
    return lines


class Program:
    """Calls a barrier, and knows from where."""

    def __init__(self) -> None:
        self.expected: list[list[Line]] = []

    def op(self, *_: object) -> int:
        line = sys._getframe().f_lineno + 1
        dist.barrier()
        self.expect(line)
        return 0

    def expect(self, line: int) -> None:
        """The op that the caller has called at that line."""
        top, *callers = stack_of(sys._getframe(1))
        self.expected.append([(*top[:2], line), *callers])


def loop(program: Program) -> None:
    for _ in range(3):
        program.op()
        program.op()


def a_helper_of_two(program: Program) -> None:
    def first() -> None:
        program.op()

    def second() -> None:
        program.op()

    for function in (first, second, first, second):
        function()


def a_generator_of_two(program: Program) -> None:
    def steps() -> Iterator[int]:
        while True:
            yield program.op()

    running = steps()

    def one() -> None:
        next(running)

    def other() -> None:
        next(running)

    for function in (one, other, one, other):
        function()


def recursion(program: Program) -> None:
    def down(depth: int) -> None:
        if depth > 0:
            down(depth - 1)
        program.op()

    for _ in range(2):
        down(40)


def through_c(program: Program) -> None:
    for _ in range(2):
        sorted([1, 2], key=program.op)
        list(map(program.op, [1, 2]))
        functools.partial(program.op)()
        sum(program.op() for _ in range(2))
        [program.op() for _ in range(2)]


def made_code(program: Program) -> None:
    for _ in range(3):
        # New code objects each time, which may lie where the last ones lay.
        names: dict[str, Any] = {"program": program}
        exec("\n" * 7 + "def made():\n    program.op()\n\nmade()", names)
        eval("program.op()", names)


def a_class_body(program: Program) -> None:
    for _ in range(2):

        class Body:
            made = program.op()


def coroutines(program: Program) -> None:
    async def step() -> None:
        await asyncio.sleep(0)
        program.op()

    async def both() -> None:
        await asyncio.gather(step(), step())
        await step()

    asyncio.run(both())


def a_thread(program: Program) -> None:
    world = dist.group.WORLD

    def work() -> None:
        line = sys._getframe().f_lineno + 1
        dist.barrier(world)
        program.expect(line)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


WAYS: tuple[Callable[[Program], None], ...] = (
    loop,
    a_helper_of_two,
    a_generator_of_two,
    recursion,
    through_c,
    made_code,
    a_class_body,
    coroutines,
    a_thread,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_the_recorded_stack_is_that_of_python(
    way: Callable[[Program], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))
    program = Program()
    dist.run_threads(lambda: way(program), 1)
    record = read_record(tmp_path / "rank00000.ddr")
    seen = [[(each.file, each.function, each.line) for each in op.stack] for op in record.ops]
    assert len(seen) == len(program.expected) > 1
    for found, expected in zip(seen, program.expected, strict=True):
        assert len(found) >= min(len(expected), MOST_FRAMES - 4)
        assert found == expected[: len(found)]


def test_frames_are_read_where_they_lie() -> None:
    plain = sys.implementation.name == "cpython" and sys.abiflags == ""
    with_lists = sysconfig.get_config_var("Py_TRACE_REFS") == 1
    known = (3, 11) <= sys.version_info[:2] <= (3, 13)
    assert Recorder.reads_frames() is (plain and known and not with_lists)
