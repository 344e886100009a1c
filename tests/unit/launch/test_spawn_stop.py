"""What is printed when a signal ends a program that waits in spawn."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.launch import spawn_stop
from distdbg.launch.rank_activity import HostActivity

if TYPE_CHECKING:
    import pytest

ENDS = ("run folder: /runs/a", "next: distdbg analyze a")


def test_a_hang_comes_before_the_signal_that_ended_it() -> None:
    hang = "rank 0 waited 43 s for rank 1, asleep in load() at slp.py:7"

    word, lines = spawn_stop._say(
        "SIGTERM", HostActivity(lines=("rank 0: in barrier",), hang=hang), ENDS
    )

    assert word == "HUNG"
    assert lines == [
        hang,
        "interrupted by SIGTERM",
        "run folder: /runs/a",
        "next: distdbg analyze a",
    ]


def test_without_a_hang_it_is_what_the_ranks_did() -> None:
    word, lines = spawn_stop._say("SIGHUP", HostActivity(lines=("ranks 0-1: in barrier",)), ENDS)

    assert word == "STOPPED"
    assert lines[:2] == ["interrupted by SIGHUP", "ranks 0-1: in barrier"]


def test_processes_without_a_record_get_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DISTDBG_RUN_DIR", str(tmp_path))

    spawn_stop.print_stop(KeyboardInterrupt(), {0: os.getpid()})
    spawn_stop.print_stop(ValueError("of the program"), {0: os.getpid()})

    assert capsys.readouterr().err == ""


def test_signals_are_given_back_after_the_block() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with spawn_stop.ending_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_signal_that_the_program_handles_stays_with_it() -> None:
    def mine(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, mine)
    try:
        with spawn_stop.ending_by_signals():
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)
