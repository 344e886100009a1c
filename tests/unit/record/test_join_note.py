"""What a rank notes of its call of init_process_group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from distdbg.record.join_calls import JoinCall, read_join_calls
from distdbg.record.join_note import join_call, note_connected, noted_join

ENVIRON = {
    "RANK": "2",
    "WORLD_SIZE": "5",
    "MASTER_ADDR": "n01",
    "MASTER_PORT": "29500",
    "DISTDBG_HOST": "n01",
}


def made(url: object = None, environ: dict[str, str] | None = None, **given: Any) -> JoinCall:
    facts: dict[str, Any] = {
        "world_size": -1,
        "rank": -1,
        "has_store": False,
        "has_launcher_store": False,
    }
    return join_call(url, environ=ENVIRON | (environ or {}), **facts | given)


def numbers(call: JoinCall) -> tuple[int, int, int, int]:
    return call.rank, call.as_rank, call.world_size, call.started


def test_the_environment_says_what_the_call_does_not() -> None:
    assert numbers(made()) == (2, 2, 5, 5)
    assert made().where == "tcp://n01:29500"
    assert made("env://").where == "tcp://n01:29500"
    assert numbers(made(environ={"WORLD_SIZE": "x"})) == (2, 2, -1, -1)


def test_arguments_go_before_the_url_and_that_before_the_environment() -> None:
    url = "tcp://n09:29743?rank=1&world_size=7"
    assert numbers(made(url)) == (2, 1, 7, 5)
    assert numbers(made(url, world_size=6, rank=0)) == (2, 0, 6, 5)
    assert made(url).where == "tcp://n09:29743"
    assert numbers(made(world_size=None, rank=None)) == (2, 2, 5, 5)


def test_an_address_that_is_not_used_is_not_noted() -> None:
    assert made(has_store=True).where == ""
    store = {"DISTDBG_STORE": "launcher://n01:4"}
    assert made(environ=store, has_launcher_store=True).where == ""
    assert made(environ=store).where == "tcp://n01:29500"  # torch does not look there
    assert made("tcp://n09:1", environ=store, has_launcher_store=True).where == "tcp://n09:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    facts = {"DISTDBG_RUN": "r", "DISTDBG_RUN_DIR": str(tmp_path)}
    for name, value in (ENVIRON | facts).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def noted(url: str = "tcp://n01:1") -> Any:
    return noted_join(url, world_size=6, rank=-1, has_store=False)


def only(folder: Path) -> JoinCall:
    [call] = read_join_calls(folder).values()
    return call


def test_each_step_is_noted_with_the_line_of_the_program(folder: Path) -> None:
    with noted():
        assert (only(folder).step, only(folder).is_connected) == ("called", False)
        note_connected()
        assert (only(folder).step, only(folder).is_connected) == ("connected", True)
        with noted("tcp://other:1"):  # a part of it
            note_connected()
        assert only(folder).step == "connected"
    assert only(folder).step == "joined"
    assert only(folder).stack[0].file == __file__
    note_connected()  # outside of any call
    assert only(folder).step == "joined"


def test_an_error_is_noted_in_one_line_and_raised(folder: Path) -> None:
    with pytest.raises(ValueError, match="one"), noted():
        raise ValueError("one\ntwo")
    assert (only(folder).step, only(folder).error) == ("failed", "ValueError: one")


@pytest.mark.parametrize("name", ["DISTDBG_RUN", "DISTDBG_RUN_DIR", "RANK"])
def test_without_a_launcher_nothing_is_noted(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(name)
    with noted():
        note_connected()
    assert [*folder.iterdir()] == []


def test_a_folder_that_is_gone_harms_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(folder / "gone"))
    with noted():
        note_connected()
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(folder))
    with noted():
        for path in folder.iterdir():
            path.unlink()
            path.mkdir()  # nothing can be added to it
