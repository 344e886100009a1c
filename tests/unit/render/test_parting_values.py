"""Variables that differ between ranks as their calls do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Exit, Status
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.finding_stacks import parting_values, sides_of
from distdbg.render.source_hint import with_source_hint
from distdbg.render.source_line import SourceLines
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.test_mismatch import error

FRAME = RecordedFrame("/job/a.py", 9, "main")


def session_of(values: Sequence[Mapping[str, str]], frame: RecordedFrame = FRAME) -> SessionBuilder:
    build = SessionBuilder(len(values))
    for rank, known in enumerate(values):
        build.session.ranks[rank].left_values = {(frame.file, frame.line): known}
    return build


@pytest.mark.parametrize(
    ("values", "reported"),
    [
        pytest.param(
            [{"size": "= 128", "rank": f"= {r}", "lr": "= 0.1"} for r in range(2)]
            + [{"size": "= 96", "rank": f"= {r}", "lr": "= 0.1"} for r in (2, 3)],
            ["size = 128 on ranks 0-1; size = 96 on ranks 2-3"],
            id="as the calls",
        ),
        pytest.param(
            [{"size": "= 1"}, {"size": "= 2"}, {"size": "= 2"}, {"size": "= 2"}], [], id="otherwise"
        ),
        pytest.param(
            [{"x": "float32[4]", "n": "is 3 long", "k": "= 1"}] * 2
            + [{"x": "float32[6]", "n": "is 2 long", "k": "= 2"}] * 2,
            [
                "k = 1 on ranks 0-1; k = 2 on ranks 2-3",
                "n is 3 long on ranks 0-1; n is 2 long on ranks 2-3",
            ],
            id="numbers first and no arrays",
        ),
        pytest.param([{"size": "= 1"}] * 2 + [{}, {"size": "= 2"}], [], id="not known of one"),
        pytest.param([{}] * 4, [], id="nothing known"),
        pytest.param(
            [{"the keys of params": "in order 11 of aa", "n": "= 1"}] * 2
            + [{"the keys of params": "in order 22 of aa", "n": "= 2"}] * 2,
            [
                "params has its keys in another order on ranks 0-1 than on ranks 2-3",
                "n = 1 on ranks 0-1; n = 2 on ranks 2-3",
            ],
            id="keys in another order",
        ),
        pytest.param(
            [{"the keys of x": "in order 11 of aa"}] * 2
            + [{"the keys of x": "in order 11 of bb"}] * 2,
            ["x has other keys on ranks 0-1 than on ranks 2-3"],
            id="other keys",
        ),
    ],
)
def test_only_what_each_side_agrees_on_is_told(
    values: Sequence[Mapping[str, str]], reported: list[str]
) -> None:
    session = session_of(values).session
    sides = ((0, 1), (2, 3))
    assert parting_values(session, sides, FRAME, ()) == reported
    assert parting_values(session, sides, FRAME, reported) == []  # it is said already
    assert parting_values(session, (), FRAME, ()) == []


def finding(ranks: tuple[int, ...], victims: tuple[int, ...], kind: FindingKind) -> Finding:
    return Finding(kind=kind, severity=Severity.ERROR, what="x", ranks=ranks, victims=victims)


def test_sides_are_those_of_the_finding_or_those_of_the_calls() -> None:
    build = SessionBuilder(4)
    for rank in range(4):
        build.op(rank, "all_reduce", at_s=1, dtype="float32", inputs=[(4 if rank < 2 else 6,)])
    session = build.session
    assert sides_of(session, finding((3,), (0, 1, 2), FindingKind.MISMATCH)) == ((3,), (0, 1, 2))
    assert sides_of(session, finding((), (0, 1, 2, 3), FindingKind.MISMATCH)) == ((0, 1), (2, 3))
    assert (
        sides_of(session, finding((), (0, 2), FindingKind.MISMATCH)) == ()
    )  # nobody agrees with anybody
    assert sides_of(session, finding((3,), (0, 1, 2), FindingKind.DEADLOCK)) == ()


def differing(
    folder: Path,
    program: str,
    *,
    hint: str,
    values: Sequence[Mapping[str, str]],
    odd_dtype: str = "float32",
) -> str:
    """The advice where rank 0 of four differs from the others, at the last line of `program`."""
    path = folder / "fit.py"
    path.write_text(program)
    lines = program.count("\n")
    site = f"{path}:{lines} (step)"
    build = SessionBuilder(4)
    what = "broadcast #1 on group 'world' differs between ranks: float32[4] on rank 0, ..."
    for rank in range(4):
        said = error(what, seq=1, group="world", ranks=[0], hint=hint)
        build.op(
            rank, "broadcast", at_s=1, ended_s=2, status=Status.MISMATCH,
            dtype="float32" if rank else odd_dtype,
            inputs=[(6 if rank else 4,)], site=site, error=said,
        )  # fmt: skip
        build.session.ranks[rank].left_values = {(str(path), lines): values[min(rank, 1)]}
        build.exit(rank, Exit.RAISED, at_s=2, what="MismatchError: x", where=site)
    session = build.session
    source = SourceLines(str(folder), time.time_ns() + 10**15)
    reported = with_source_hint(session, diagnose(session), source)
    assert reported.root is not None
    assert reported.root.ranks == (0,)
    return reported.root.advice


def test_keys_in_another_order_are_the_hint_with_what_made_them(tmp_path: Path) -> None:
    program = "def step():\n    params = load()\n    for one in params.values():\n        broadcast(one)\n"
    keys = [{"the keys of params": f"in order {one} of aa"} for one in ("11", "22")]
    hint = "see what sets the size of the arrays on rank 0"
    assert differing(tmp_path, program, hint=hint, values=keys) == (
        "see where params gets its keys: params is set by `params = load()` (line 2) of fit.py; it has its "
        "keys in another order on rank 0 than on ranks 1-3"
    )


def test_an_array_of_an_empty_list_is_the_hint_where_dtypes_differ(tmp_path: Path) -> None:
    program = "def step(scores):\n    gather(np.array(scores))\n"
    hint = "see where the arrays on rank 0 get their dtype: all ranks need the same"
    empty = [{"scores": "is 0 long"}, {"scores": "is 7 long"}]
    assert differing(tmp_path, program, hint=hint, values=empty, odd_dtype="float64") == (
        "scores is empty on rank 0, and an array of nothing is float64: say the dtype at fit.py:2"
    )
    full = [{"scores": "is 3 long"}, {"scores": "is 7 long"}]
    assert "empty" not in differing(tmp_path, program, hint=hint, values=full, odd_dtype="float64")


def test_a_number_of_the_loop_that_differs_is_the_hint_of_calls_at_other_lines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "def main():\n    while step < LAST:\n        all_reduce(x)\n        barrier()\n"
    )
    build = SessionBuilder(3)
    what = (
        "op #4 on group 'world' differs between ranks: all_reduce on ranks 0-1, barrier on rank 2"
    )
    for rank in range(3):
        line, kind = (4, "barrier") if rank == 2 else (3, "all_reduce")
        site = f"{path}:{line} (main)"
        said = error(what, seq=1, group="world", ranks=[2], hint="see which branch was taken")
        build.op(rank, kind, at_s=1, ended_s=2, status=Status.MISMATCH, site=site, error=said)
        values = {"step": f"= {300 if rank == 2 else 400}", "LAST": "= 800"}
        build.session.ranks[rank].left_values = {(str(path), line): values}
        build.exit(rank, Exit.RAISED, at_s=2, what="MismatchError: x", where=site)
    session = build.session
    source = SourceLines(str(tmp_path), time.time_ns() + 10**15)
    reported = with_source_hint(session, diagnose(session), source)
    assert reported.root is not None
    assert reported.root.advice == (
        "see where step starts: in `while step < LAST` (line 2 of job.py) it is 300 on rank 2 and 400 on "
        "ranks 0-1"
    )


def test_a_setting_that_differs_as_the_sizes_do_is_the_hint(tmp_path: Path) -> None:
    path = tmp_path / "fit.py"
    path.write_text("def main():\n    step(grads)\ndef step(grads):\n    dist.all_reduce(grads)\n")
    build = SessionBuilder(4)
    what = "all_reduce #1 on group 'world' differs between ranks: float32[4] on ranks 0-1, ..."
    for rank in range(4):
        side = rank // 2
        build.op(
            rank,
            "all_reduce",
            at_s=1,
            ended_s=2,
            status=Status.MISMATCH,
            dtype="float32",
            inputs=[(6 if side else 4,)],
            site=f"{path}:4 (step) < {path}:2 (main)",
            error=error(what, seq=1, group="world", hint="see what sets the size of the arrays"),
        )
        log = build.session.ranks[rank]
        values = {'config["bucket"]': f"= {96 if side else 128}", "step": "= 3"}
        log.left_values = {(str(path), 2): values, (str(path), 4): {"n": f"= {side}"}}
        build.exit(rank, Exit.RAISED, at_s=2, what="MismatchError: x", where=f"{path}:4 (step)")
    session = build.session
    reported = with_source_hint(
        session, diagnose(session), SourceLines(str(tmp_path), time.time_ns() + 10**15)
    )
    assert reported.root is not None
    assert reported.root.ranks == ()
    assert reported.root.advice == (
        'see why config["bucket"] is 128 on ranks 0-1 and 96 on ranks 2-3 (at fit.py:2 (main))'
    )
