"""The scorer complains about everything that is not as a program says."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from runner.score import describe_end, score, score_haste
from runner.truth import FOLDER, read_truth

WRONG = read_truth(FOLDER / "wrong" / "reduce_op.py")
RIGHT = read_truth(FOLDER / "right" / "p2p_then_barrier.py")
LEFT = read_truth(FOLDER / "wrong" / "killed.py")

FIRST = (
    "all_reduce #1 on group 'world' differs between ranks: op SUM on ranks 0-1, op MAX on rank 2"
)


def _mismatch(rank: int, line: int) -> dict[str, Any]:
    text = [
        FIRST,
        f"  ranks 0-1 called all_reduce at reduce_op.py:{line} (main)",
        f"  rank 2 called all_reduce at reduce_op.py:{line} (main)",
        "  no data was exchanged; the group is still usable",
        *(["  this rank is the one that differs"] if rank == 2 else []),
    ]
    error = {
        "class": "MismatchError",
        "text": "\n".join(text),
        "first": FIRST,
        "line": line,
        "facts": {"kind": "all_reduce", "seq": 1, "group": "world", "ranks": [2]},
        "called_s": 10.0,
        "is_untouched": True,
    }
    report = {"error": error, "raised_s": 10.05, "took_s": 0.1, "op_count": 1}
    return {
        "rank": rank, "hung": False, "exit_code": 1, "stdout": "", "stderr": "", "report": report,
    }  # fmt: skip


@pytest.fixture
def mismatch() -> list[dict[str, Any]]:
    return [_mismatch(rank, WRONG.sites[0]) for rank in range(3)]


@pytest.fixture
def silence() -> list[dict[str, Any]]:
    report = {"error": None, "took_s": 0.1, "op_count": 2}
    one = {"hung": False, "exit_code": 0, "stdout": "", "stderr": "", "report": report}
    return [{"rank": rank, **copy.deepcopy(one)} for rank in range(3)]


def test_nothing_to_complain_about(mismatch: Any, silence: Any) -> None:
    assert score(WRONG, mismatch) == []
    assert score_haste(WRONG, mismatch) == []
    assert score(RIGHT, silence) == []


def _error(results: Any, rank: int = 0) -> Any:
    return results[rank]["report"]["error"]


def _replace(results: Any, old: str, new: str, ranks: tuple[int, ...] = (0, 1, 2)) -> None:
    for rank in ranks:
        error = _error(results, rank)
        assert old in error["text"]
        error["text"] = error["text"].replace(old, new)
        error["first"] = error["text"].partition("\n")[0]


CHANGES: dict[str, tuple[Any, str]] = {
    "another class": (lambda r: _error(r).update({"class": "OpTimeout"}), "ended with OpTimeout"),
    "a rank is silent": (
        lambda r: r[1].update(exit_code=0, report={"error": None, "took_s": 0.1}),
        "rank 1 ended with silent",
    ),
    "a rank hangs": (lambda r: r[1].update(hung=True), "rank 1 ended with hung"),
    "a rank crashes": (lambda r: r[2].update(exit_code=-11), "rank 2 ended with SIGSEGV"),
    "the wrong ranks": (lambda r: _error(r)["facts"].update(ranks=[0]), "names ranks [0], not [2]"),
    "the wrong op": (lambda r: _error(r)["facts"].update(kind="gather"), "is about 'gather'"),
    "the wrong line": (
        lambda r: _replace(
            r, "rank 2 called all_reduce at reduce_op.py:", "rank 2 called it at x.py:"
        ),
        "says that rank 2 called at line []",
    ),
    "one side is not told": (
        lambda r: _replace(r, "ranks 0-1 called", "rank 0 called"),
        "says that rank 1 called at line []",
    ),
    "values are not told": (lambda r: _replace(r, "op MAX", "another op"), "does not say 'op MAX"),
    "two texts": (lambda r: _replace(r, "usable", "good", (1,)), "told different things"),
    "the odd rank is not told": (
        lambda r: _replace(r, "this rank is the one that differs", "", (2,)),
        "does not say it is odd",
    ),
    "bytes moved": (lambda r: _error(r).update(is_untouched=False), "an output was written"),
    "nobody looked at the bytes": (lambda r: _error(r).pop("is_untouched"), "was not seen"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=list(CHANGES))
def test_a_wrong_error_is_noticed(change: Any, words: str, mismatch: Any) -> None:
    change(mismatch)
    assert words in "\n".join(score(WRONG, mismatch))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"stderr": "UserWarning: slow"}, "was not silent: UserWarning"),
        ({"stdout": "hm"}, "was not silent: hm"),
        ({"exit_code": 1}, "ended with exit 1"),
        ({"hung": True}, "ended with hung"),
    ],
)
def test_noise_about_a_right_program_is_noticed(change: Any, words: str, silence: Any) -> None:
    silence[1].update(change)
    assert words in "\n".join(score(RIGHT, silence))


def test_the_lost_rank_must_be_named_soon() -> None:
    error = {
        "class": "PeerLost",
        "text": "rank 1 was killed",
        "first": "rank 1 was killed",
        "facts": {"peer": 1, "kind": "all_gather"},
    }
    lost = {
        "hung": False,
        "exit_code": 1,
        "report": {"error": error, "took_s": 9.0, "raised_s": 20.0},
    }
    killed = {"hung": False, "exit_code": -9, "report": None}
    assert "names rank 1, not [2]" in "\n".join(score(LEFT, [lost, lost, killed]))
    assert "rank 0 noticed 9.0 s too late" in score_haste(LEFT, [lost, lost, killed])
    assert describe_end(killed) == "SIGKILL"


def test_a_mismatch_must_be_raised_at_once(mismatch: Any) -> None:
    mismatch[0]["report"].update(raised_s=12.0)
    assert score_haste(WRONG, mismatch) == ["the mismatch was raised 2.0 s too late"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "no literal TRUTH"),
        ("TRUTH = {'ranks': 2, 'outcome': 'silent', 'ods': [1]}\n", "unknown keys"),
        ("TRUTH = {'ranks': 2, 'outcome': {0: 'silent'}}\n", "outcome of every rank"),
        ("TRUTH = {'ranks': 2, 'outcome': 'silent'}\nf()  # <- od\n", "unknown mark"),
        ("TRUTH = {'ranks': 2, 'outcome': 'silent'}\nf()  # <- all\ng()  # <- all\n", "two lines"),
    ],
)
def test_a_truth_that_makes_no_sense_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_truth(path)
