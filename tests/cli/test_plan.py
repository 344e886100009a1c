"""`distdbg plan` in process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.cli.main import main


def test_plan_says_what_is_chosen_and_what_else_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "all_reduce", "--ranks", "64", "--hosts", "8", "--size", "1MiB"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "all_reduce of 1.0 MiB, 64 ranks on 8 hosts: halving"
    [chosen] = [line for line in lines if line.split()[0] == "*"]
    assert chosen.split()[1] == "halving"
    assert {"ring", "doubling", "double_tree", "slots"} <= {
        w for line in lines for w in line.split()
    }
    assert lines[-1].startswith("no algorithm takes less than ")


def test_plan_as_json_has_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "broadcast", "--ranks", "6", "--hosts", "3", "--root", "5", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["ranks"], document["hosts"]) == ("broadcast", 6, 3)
    [chosen] = [row for row in document["algorithms"] if row["chosen"]]
    assert chosen["time_s"] >= document["bound_s"] > 0
    assert chosen["simulated"]


def test_plan_of_one_host_has_no_messages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "all_reduce", "--ranks", "4", "--size", "8"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("4 ranks on 1 host: flat")


def test_an_algorithm_can_be_wished_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "reduce", "--ranks", "8", "--hosts", "4", "--algo", "binomial"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": binomial")


def test_the_variable_is_obeyed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_ALGO", "all_reduce=ring")
    assert main(["plan", "all_reduce", "--ranks", "8", "--hosts", "4"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": ring")


def test_messages_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.svg"
    given = ["plan", "all_reduce", "--ranks", "8", "--hosts", "4", "--svg", str(file)]
    assert main(given) == 0
    assert capsys.readouterr().err == f"Wrote {file}\n"
    assert file.read_text().startswith("<svg")


def test_a_picture_that_is_there_is_replaced_by_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.svg"
    file.write_text("mine")
    given = ["plan", "all_reduce", "--ranks", "8", "--hosts", "4", "--svg", str(file)]
    assert main(given) == 2
    said = capsys.readouterr()
    assert (said.out, file.read_text()) == ("", "mine")
    assert said.err == f"UsageError: --svg {file} already exists\n  hint: --force replaces it\n"
    assert main([*given, "--force"]) == 0
    assert file.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("hosts", "place", "words"),
    [
        ("4", "gone/x.svg", "there is no folder"),
        ("4", "", "is a folder"),
        ("1", "x.svg", "there is one host"),
    ],
)
def test_where_no_picture_can_be_nothing_is_printed(
    hosts: str, place: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / place)
    assert main(["plan", "all_reduce", "--ranks", "8", "--hosts", hosts, "--svg", file]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("UsageError: --svg")
    assert words in said.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--ranks", "2", "--hosts", "3"], "2 ranks do not fit 3 hosts"),
        (["--ranks", "4", "--hosts", "2", "--root", "4"], "ranks are 0 to 3"),
        (["--ranks", "4", "--hosts", "2", "--algo", "x"], "all_reduce has slots, doubling"),
        (["--ranks", "4", "--hosts", "2", "--size", "6"], "elements have 4 bytes"),
        (["--ranks", "70000"], "at most 65,536"),
        (["--ranks", "4", "--svg", "x.svg"], "there is one host"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "all_reduce", *given]) == 2
    assert words in capsys.readouterr().err
