"""The hint at an array whose dtype nobody has given, with twins in which it would be wrong."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder

PACK = """\
def pack(events):
    if not events:
        return np.zeros((2, 8))
    table = np.zeros((2, 8), np.float32)
    return table
def main():
    table = pack(events)
    all_reduce(table)
"""


def hint(folder: Path, text: str, odd: str = "float64", dtype: str = "float32") -> str:
    """Rank 2 of 3 has another dtype at the line of the op."""
    path = folder / "job.py"
    path.write_text(text)
    line = text.splitlines().index("    all_reduce(table)") + 1
    build = SessionBuilder(3)
    sides = f"{dtype}[2,8] on ranks 0-1, {odd}[2,8] on rank 2"
    what = f"all_reduce #1 on group 'world' differs between ranks: {sides}"
    for rank in range(3):
        site = f"{path}:{line} (main)"
        facts = {
            "type": "MismatchError",
            "what": what,
            "kind": "all_reduce",
            "seq": 1,
            "group": "world",
            "ranks": [2],
            "hint": "see where the arrays on rank 2 get their dtype: all ranks need the same",
        }
        build.op(
            rank, "all_reduce", at_s=1, ended_s=2, status=Status.MISMATCH, site=site,
            dtype=odd if rank == 2 else dtype, inputs=[(2, 8)], error=json.dumps(facts),
        )  # fmt: skip
        build.exit(rank, Exit.RAISED, at_s=2, what="MismatchError: x", where=site)
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(build.session, diagnose(build.session), source)
    assert reported.root is not None
    return reported.root.advice


def test_a_function_that_returns_zeros_without_a_dtype(tmp_path: Path) -> None:
    assert hint(tmp_path, PACK) == (
        "np.zeros without a dtype is float64: give it float32, as the other ranks have (line 3 of job.py)"
    )


def test_in_a_module_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "aggregate.py").write_text(PACK.partition("def main")[0])
    text = f"from aggregate import pack\ndef main{PACK.partition('def main')[2]}"
    assert hint(tmp_path, text).endswith("(line 3 of aggregate.py)")


def test_a_variable_of_such_a_function(tmp_path: Path) -> None:
    text = PACK.replace("return np.zeros((2, 8))", "return table").replace("8), np.float32", "8)")
    assert hint(tmp_path, text).endswith("(line 4 of job.py)")


def test_at_the_line_itself(tmp_path: Path) -> None:
    text = "def main():\n    table = np.ones(8)\n    all_reduce(table)\n"
    assert hint(tmp_path, text).startswith("np.ones without a dtype is float64: give it float32")


@pytest.mark.parametrize(
    ("text", "odd", "dtype"),
    [
        (PACK.replace("((2, 8))", "((2, 8), np.float32)"), "float64", "float32"),
        (PACK.replace("((2, 8))", "((2, 8), dtype=kind)"), "float64", "float32"),
        (PACK.replace("np.zeros((2, 8))", "read()"), "float64", "float32"),
        (PACK, "float32", "float64"),  # the others have the one that NumPy makes
        (PACK, "int64", "float32"),
    ],
)
def test_what_has_a_dtype_or_another_one_is_no_cause(
    tmp_path: Path, text: str, odd: str, dtype: str
) -> None:
    assert "without a dtype" not in hint(tmp_path, text, odd, dtype)
