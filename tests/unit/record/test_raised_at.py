"""Where a rank says that it failed: at the line of its program, not inside a package."""

from __future__ import annotations

import json
import sysconfig
from pathlib import Path

import pytest

from distdbg.errors import UsageError
from distdbg.record.format import Exit
from distdbg.record.libraries import is_library
from distdbg.record.rank_words import read_exit_text
from distdbg.record.writing import write_exit

STDLIB = sysconfig.get_path("stdlib")


class Recorder:
    """Keeps the words of an exit."""

    def __init__(self) -> None:
        self.words = b""

    def add_text(self, words: bytes) -> int:
        self.words = words
        return 1

    def set_exit(self, how: int, text: int) -> None:
        assert (how, text) == (int(Exit.RAISED), 1)


def where(*paths: str) -> str:
    """Where it is said to have failed, of frames in these files, the last of which raises."""
    space: dict[str, object] = {}
    body = "raise MemoryError('no')"
    for path in reversed(paths):
        exec(compile(f"def f(inner):\n    {body}\n", path, "exec"), space)
        space["inner"] = (space.pop("f"), space.get("inner"))
        body = "inner[0](inner[1])"
    recorder = Recorder()
    function, inner = space["inner"]  # type: ignore[misc]
    with pytest.raises(MemoryError) as caught:
        function(inner)
    trace = caught.tb.tb_next  # without the frame of this function
    write_exit(recorder, Exit.RAISED, caught.value.with_traceback(trace))  # type: ignore[arg-type]
    found = json.loads(recorder.words)["where"]
    assert isinstance(found, str)
    return found.removesuffix(":2 (f)")


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("/job/train.py", "/job/data.py"), "/job/data.py"),
        (("/job/train.py", "/v/lib/python3.13/site-packages/numpy/a.py"), "/job/train.py"),
        (("/job/train.py", f"{STDLIB}/json/decoder.py"), "/job/train.py"),
        (("/job/train.py", "/v/site-packages/loop.py", "/job/step.py"), "/job/step.py"),
        (("/v/site-packages/a.py", "/v/site-packages/b.py"), "/v/site-packages/b.py"),
    ],
)
def test_the_innermost_line_of_the_program_is_where_it_failed(
    paths: tuple[str, ...], expected: str
) -> None:
    assert where(*paths) == expected


def test_the_script_of_an_installed_package_is_no_program() -> None:
    assert is_library(str(Path(sysconfig.get_path("scripts")) / "train"))
    assert not is_library("/job/train.py")
    assert is_library("numpy/random/_common.pyx")  # compiled by Cython


def test_what_its_error_advises_is_kept_beside_it() -> None:
    recorder = Recorder()
    error = UsageError("send to oneself", hint="call irecv before it")
    write_exit(recorder, Exit.RAISED, error)  # type: ignore[arg-type]
    found = read_exit_text(recorder.words.decode())
    assert found == ("UsageError: send to oneself", "", "call irecv before it", "")
    write_exit(recorder, Exit.RAISED, ValueError("7"))  # type: ignore[arg-type]
    assert read_exit_text(recorder.words.decode()) == ("ValueError: 7", "", "", "")


def test_a_traceback_that_the_text_quotes_is_not_where_it_failed() -> None:
    quoted = (
        'Traceback (most recent call last):\n  File "/job/conv.py", line 3, in cache\nKeyError: 1'
    )
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError(f"conversion failed for shard 9\nstderr:\n{quoted}\nno space left")
    recorder = Recorder()
    write_exit(recorder, Exit.RAISED, caught.value)  # type: ignore[arg-type]  # a stand-in of a recorder
    found = json.loads(recorder.words)
    assert found["what"] == "RuntimeError: conversion failed for shard 9"
    assert found["where"].startswith(f"{__file__}:")
