"""Prompts of ranks that another launcher has started: at its terminal, from its stdin, or nowhere."""

from __future__ import annotations

import os
import re
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distdbg.debugger.given_input import InputSource, given
from tests.support.terminals import ShownProgram

PROGRAM = """
    import distdbg as dist

    dist.init_process_group()
    x = 40 + dist.get_rank()
    CALL
    dist.barrier()
    print("x is", x, flush=True)
    dist.destroy_process_group()
"""


def program(call: str) -> str:
    return PROGRAM.replace("CALL", call)


@contextmanager
def pipe(text: bytes, *, stays_open: bool = False) -> Iterator[int]:
    reader, writer = os.pipe()
    os.write(writer, text)
    if not stays_open:
        os.close(writer)
    try:
        yield reader
    finally:
        os.close(reader)
        if stays_open:
            os.close(writer)


def test_lines_on_stdin_are_typed_at_each_prompt_and_ranks_share_them(ranks_of: Any) -> None:
    with pipe(b"p 'this is', x\nx = 7\ncontinue\np 'this is', x\n") as stdin:
        ranks_of.start(program("dist.breakpoint(rank=[0, 1])"), 2, stdin=stdin)
        assert ranks_of.wait() == [0, 0]
    said = [ranks_of.out(rank) for rank in range(2)]
    first = 0 if "x is 7" in said[0] else 1
    assert re.search(
        rf"\(Pdb\) p 'this is', x\n\('this is', {40 + first}\)\n\(Pdb\) x = 7\n", said[first]
    )
    # What is left is the other's, which goes on when no line is left.
    other = 41 - first
    assert re.search(
        rf"\(Pdb\) p 'this is', x\n\('this is', {other}\)\n\(Pdb\) EOF\n", said[1 - first]
    )
    assert f"x is {other}" in said[1 - first]


def test_a_client_takes_the_place_of_a_pipe_that_says_nothing(ranks_of: Any) -> None:
    with pipe(b"", stays_open=True) as stdin:
        ranks_of.start(program("dist.breakpoint()"), stdin=stdin)
        ranks_of.until_printed("(Pdb) ")
        with ranks_of.attach() as client:
            client.expect(r"\(Pdb\) ")
            client.type("x = 5\n")
            client.expect(r"\(Pdb\) ")
            client.type("continue\n")
            client.wait()
        assert ranks_of.wait() == [0]
    assert "x is 5" in ranks_of.out()


def test_a_rank_with_a_terminal_as_stdin_alone_has_its_prompt_there(ranks_of: Any) -> None:
    master, slave = os.openpty()
    try:
        ranks_of.start(program("dist.breakpoint(rank=[0, 1])"), 2, stdin=slave)
        terminal = ShownProgram(ranks_of.processes[0], master)
        ranks = []
        for _ in range(2):
            terminal.expect(r"\(Pdb\) ")
            terminal.type("p 'rank', dist.get_rank()\n")
            ranks.append(terminal.expect(r"\('rank', \d\)\s+\(Pdb\) "))
            terminal.type("continue\n")
        assert sorted(re.findall(r"'rank', (\d)\)", "".join(ranks))) == ["0", "1"]
        assert ranks_of.wait() == [0, 0]
    finally:
        os.close(master)
        os.close(slave)


@pytest.mark.parametrize("call", ["dist.breakpoint()", "breakpoint()"])
def test_where_nobody_can_type_a_rank_says_so_and_continues(call: str, ranks_of: Any) -> None:
    ranks_of.start(program(call))
    assert ranks_of.wait() == [0]
    said = ranks_of.out()
    assert (
        "continues: this rank has neither a terminal nor input; dist.breakpoint(timeout_s=...)"
        in said
    )
    assert "x is 40" in said


def test_it_waits_as_long_as_the_program_says(ranks_of: Any) -> None:
    ranks_of.start(program("dist.breakpoint(timeout_s=60)"))
    ranks_of.until_stopped()
    with ranks_of.attach() as client:
        client.expect(r"\(Pdb\) ")
        client.type("continue\n")
        client.wait()
    assert ranks_of.wait() == [0]


def test_what_stdin_is(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("continue\n")
    master, terminal = os.openpty()
    one, other = socket.socketpair()
    lines = os.open(tmp_path / "lines", os.O_RDONLY)
    null = os.open(os.devnull, os.O_RDONLY)
    with pipe(b"p x\n") as some, pipe(b"") as ended, pipe(b"", stays_open=True) as idle, one, other:
        assert given(terminal) is InputSource.TERMINAL
        assert [given(fd) for fd in (some, idle, lines, one.fileno())] == [InputSource.LINES] * 4
        os.read(lines, 100)
        other.close()
        assert [given(fd) for fd in (ended, null, lines)] == [InputSource.NOTHING] * 3
    for fd in (master, terminal, lines, null):
        os.close(fd)
    assert given(null) is InputSource.NOTHING  # a closed one


def test_a_stdin_that_was_closed_at_the_start_is_nothing(ranks_of: Any) -> None:
    # What has its number then is a socket or a file of the rank itself.
    ranks_of.start(program("dist.breakpoint()"), preexec_fn=close_stdin)
    assert ranks_of.wait() == [0]
    assert "neither a terminal nor input" in ranks_of.out()


def close_stdin() -> None:
    os.close(0)


def test_lines_are_read_by_a_rank_with_thousands_of_open_files(ranks_of: Any) -> None:
    many = "import os; held = [os.open('/dev/null', 0) for _ in range(1100)]; dist.breakpoint()"
    with pipe(b"p 6 * 7\n") as stdin:
        ranks_of.start(program(many), stdin=stdin, preexec_fn=allow_many_files)
        assert ranks_of.wait() == [0]
    assert "(Pdb) p 6 * 7\n42\n" in ranks_of.out()


def allow_many_files() -> None:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
