"""`distdbg tune`: what is measured is kept and shown, and shown again without measuring."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from distdbg.cli.tune import main
from distdbg.runtime.tuning import background, tuner
from distdbg.runtime.tuning.profile import Profile, TransportKind, Ways
from distdbg.runtime.tuning.profile_file import KeptProfile, Machine, write_kept
from distdbg.runtime.tuning.ranks import Times
from distdbg.runtime.tuning.trials import DEFAULT, DIRECT, HALF, trials_for


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept: nothing is at first."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("DISTDBG_TUNE", "on")
    return tmp_path / "distdbg"


def planted(ranks: int, budget_s: float) -> Times:
    """A machine on which reading directly takes half as long."""
    assert budget_s > 0
    cost: dict[str, float] = {DEFAULT: 2e-5, HALF: 2e-5, DIRECT: 1e-5}
    return {
        trial.name: {variant: [cost.get(variant, 2e-5)] * 3 for variant in trial.variants}
        for trial in trials_for(ranks, 2)
    }


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranks were measured, each time, on a planted machine."""
    asked: list[int] = []

    def measure(ranks: int, trials: object, budget_s: float) -> Times:
        asked.append(ranks)
        return planted(ranks, budget_s)

    monkeypatch.setattr(tuner, "time_trials", measure)
    monkeypatch.setattr(tuner, "is_disturbing", lambda others, ranks: False)
    return asked


def test_a_machine_is_measured_once_and_then_shown(
    state: Path, measured: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    assert measured == [2, 4]
    assert "direct 10.0 us (20.0 us)" in text
    [file] = state.iterdir()
    assert text.splitlines()[-1] == f"kept in {file}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert main([]) == main(["--show"]) == 0
    assert capsys.readouterr().out == text * 2
    assert measured == [2, 4]
    assert main(["--redo"]) == 0
    assert measured == [2, 4, 2, 4]


def test_show_measures_nothing(
    state: Path, measured: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--show"]) == 0
    text = capsys.readouterr().out
    assert "nothing is kept; `distdbg tune` measures it" in text
    assert "stream_nbytes  8.0 MiB" in text
    assert not measured
    assert not state.exists()


def test_json_has_what_is_kept_and_what_is_used(
    state: Path,
    measured: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main(["--json"])
    shown = json.loads(capsys.readouterr().out)
    assert shown["used"] == shown["kept"]["profile"]
    assert Profile.from_plain(shown["used"]).pairs == Ways.all(TransportKind.DIRECT)
    monkeypatch.setenv("DISTDBG_TUNE", "off")
    main(["--show", "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert Profile.from_plain(shown["used"]) == Profile()
    main(["--show"])
    assert capsys.readouterr().out.splitlines()[-1] == "not what groups use now: DISTDBG_TUNE=off"


def test_a_busy_host_is_measured_again_and_said(
    state: Path,
    measured: list[int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuner, "is_disturbing", lambda others, ranks: True)
    monkeypatch.setattr("distdbg.cli.tune._WAIT_S", 0.0)
    assert main([]) == 0
    assert measured == [2, 4] * 3
    assert "other processes used the cores meanwhile" in capsys.readouterr().out
    assert len(list(state.iterdir())) == 1  # who asked for it gets it


def test_after_a_job_a_busy_host_is_left_alone(
    state: Path, measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "nice", lambda by: by)
    monkeypatch.setattr(tuner, "is_disturbing", lambda others, ranks: True)
    assert tuner.main() == 0
    assert measured == [2, 4]
    assert [path.name for path in state.iterdir()] == [background.LOCK]
    monkeypatch.setattr(tuner, "is_disturbing", lambda others, ranks: False)
    tuner.main()
    assert len(list(state.iterdir())) == 2
    tuner.main()  # it is kept now
    assert measured == [2, 4] * 2


def test_of_several_at_once_one_measures(state: Path, measured: list[int]) -> None:
    with tuner._turn() as is_ours:
        assert is_ours
        assert tuner.main() == 0
    assert measured == []


def test_a_file_that_others_could_have_written_is_measured_again(
    state: Path, measured: list[int]
) -> None:
    path = write_kept(KeptProfile(Machine.here(), Profile(spins=7), {}, 0.4, "now"))
    assert path is not None
    path.chmod(0o660)
    main([])
    assert measured == [2, 4]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_real_measurement_ends_in_time_and_leaves_nothing(state: Path) -> None:
    words = [sys.executable, "-m", "distdbg", "tune", "--json"]
    text = subprocess.run(words, check=True, capture_output=True, timeout=60, text=True).stdout
    kept = json.loads(text)["kept"]
    assert any(name.startswith("2 way all_reduce") for name in kept["times_s"])
    assert all(seconds > 0 for of in kept["times_s"].values() for seconds in of.values())
    Profile.from_plain(kept["profile"])
    assert [str(path) for path in state.iterdir()] == [kept["path"]]


@pytest.mark.slow
def test_a_job_has_its_host_measured_when_it_is_over(state: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text("import distdbg as d; d.init_process_group(); d.destroy_process_group()\n")
    words = [sys.executable, "-m", "distdbg", "run", "--nproc-per-node=2", str(script)]
    environ = os.environ | {"DISTDBG_AGENT": "1"}
    subprocess.run(words, check=True, capture_output=True, timeout=60, env=environ)
    lock = state / background.LOCK
    until = time.monotonic() + 30
    # The process is nobody's child: that it has had its turn, and has it no more, says that it is done.
    while not (lock.exists() and lock.read_text() and _is_free()):
        assert time.monotonic() < until, "nobody has measured"
        time.sleep(0.02)  # the process that measures announces nothing


def _is_free() -> bool:
    with tuner._turn() as is_ours:
        return is_ours


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_one_core_of_several_is_not_measured_for_all(state: Path) -> None:
    core = min(os.sched_getaffinity(0))
    done = subprocess.run(
        [sys.executable, "-m", "distdbg", "tune"],
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "this process is bound to one core of" in done.stderr
    assert not list(state.glob("tuned-*"))
