"""`distdbg break`: what is asked is read before a run is looked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from distdbg.cli.break_ import _rule_and_run
from distdbg.cli.clock_words import is_paused, who_holds
from distdbg.cli.main import main
from distdbg.errors import UsageError


def test_a_rule_has_an_operator_and_a_run_has_none() -> None:
    assert _rule_and_run(["rank=3,seq>=4", "0412"], None) == ("rank=3,seq>=4", "0412")
    assert _rule_and_run(["0412"], None) == (None, "0412")
    assert _rule_and_run(["rank=3"], "lr=0.1") == ("rank=3", "lr=0.1")
    assert _rule_and_run([], None) == (None, None)
    with pytest.raises(UsageError, match="2 rules"):
        _rule_and_run(["rank=3", "kind=send"], None)
    with pytest.raises(UsageError, match="2 runs"):
        _rule_and_run(["a", "b"], None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rnk=3"], "rnk"),
        (["kind=all_redcue"], "all_redcue"),
        (["rank=3", "--list"], "one thing at a time"),
        (["--clear", "1", "--continue", "all"], "one thing at a time"),
        (["--clear", "x"], "--clear='x' is no number of a breakpoint, nor all"),
        (["--continue", "3-1"], "--continue='3-1' is no list of ranks, nor all"),
        (["--list"], "no running job of this user on this host"),
    ],
)
def test_what_is_wrong_is_said_before_a_run_is_looked_for(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["break", *words]) == 2
    assert said in capsys.readouterr().err


def test_who_holds_the_clock_is_said_by_rank_and_place() -> None:
    user = {"kind": "user", "rank": None}
    row = {"rank": 3, "state": "in the debugger", "site": "train.py:88 (step)"}
    other = {"rank": 4, "state": "running", "site": ""}
    mine = {"kind": "rank", "rank": 3}
    assert who_holds({"holds": []}, [other]) == ""
    assert who_holds({"holds": [user]}, [other]) == ""
    assert who_holds({"holds": [mine]}, [other]) == "rank 3, in the debugger"
    assert who_holds({"holds": [mine]}, [row]) == "rank 3, in the debugger at train.py:88 (step)"
    both = [mine, {"kind": "rank", "rank": 5}]
    assert who_holds({"holds": both}, [row]) == "ranks 3,5, in the debugger"
    elsewhere = {"kind": "another host", "rank": None}
    assert who_holds({"holds": [elsewhere]}, [other]) == "a rank of another host"
    assert who_holds({"holds": [elsewhere]}, [row]).startswith("rank 3")
    assert is_paused({"holds": [mine, user]})
    assert not is_paused({"is_paused": True, "holds": [mine]})
    assert is_paused({"is_paused": True})
    assert who_holds({}, []) == ""
