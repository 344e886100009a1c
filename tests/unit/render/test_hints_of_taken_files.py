"""A file that another rank has renamed first, with twins in which that cannot be."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdbg.diagnose.traits import Trait
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

WRITE = """\
import os
def write(path, rows):
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(rows)
    os.replace(temporary, path)
"""


def hint(folder: Path, text: str, raised: str = "FileNotFoundError: x.tmp", line: int = 5) -> str:
    path = folder / "cache.py"
    path.write_text(text)
    build = SessionBuilder(2)
    for rank in range(2):
        build.op(rank, "barrier", at_s=1, ended_s=2, site=f"{path}:9 (main)")
    build.exit(1, Exit.RAISED, at_s=3, what=raised, where=f"{path}:{line} (write)")
    build.end(1, at_s=3.1, cause="exited", exit_code=1)
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    assert reported.root.ranks == (1,)
    assert reported.root.has(Trait.ERROR_PLACE) is ("another rank" in reported.root.advice)
    return reported.root.advice


@pytest.mark.parametrize("how", ["os.replace(temporary, path)", "temporary.rename(path)"])
def test_the_line_that_makes_the_name_is_told(tmp_path: Path, how: str) -> None:
    assert hint(tmp_path, WRITE.replace("os.replace(temporary, path)", how)) == (
        'another rank may have renamed or removed that file first: `temporary = path.with_suffix(".tmp")` '
        "(line 3 of cache.py) gives all of them one name; put the rank, or a unique part, into it"
    )


@pytest.mark.parametrize(
    "name", ['path.with_suffix(f".{rank}.tmp")', 'f"{path}.{os.getpid()}"', "tempfile.mktemp()"]
)
def test_a_name_of_its_own_is_not_blamed(tmp_path: Path, name: str) -> None:
    assert "another rank" not in hint(tmp_path, WRITE.replace('path.with_suffix(".tmp")', name))


def test_a_file_that_is_read_and_another_error_are_no_such_case(tmp_path: Path) -> None:
    read = WRITE.replace("os.replace(temporary, path)", "rows = open(temporary).read()")
    assert "another rank" not in hint(tmp_path, read)
    assert "another rank" not in hint(tmp_path, WRITE, raised="PermissionError: x.tmp")
