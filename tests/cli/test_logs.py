"""`distdbg logs`: folders as launchers leave them, and one real job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.cli.logs import main, read_since
from distdbg.errors import UsageError
from distdbg.record.line_times import LineTimesWriter

SECOND = 10**9
BEGAN = 1_790_000_000 * SECOND


def put(
    root: Path,
    rank: int,
    lines: list[tuple[float, str]],
    *,
    name: str = "stdout",
    attempt: int = 0,
    has_times: bool = True,
) -> Path:
    """A file of a rank, its lines written at these seconds."""
    folder = root / f"attempt_{attempt}" / str(rank)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    log.touch()
    writer = LineTimesWriter(log, rank + 10 if has_times else rank)
    for second, line in lines:
        with log.open("a") as file:
            file.write(line + "\n")
        if has_times:
            writer.look(BEGAN + int(second * SECOND))
    writer.close()
    return log


def logs(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_lines_go_by_time_and_equal_ones_are_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "logs"
    put(root, 0, [(1, "epoch 1"), (3, "saved"), (5, "epoch 2")])
    put(root, 1, [(1.2, "epoch 1"), (5.2, "epoch 2")])
    put(root, 1, [(4, "careful")], name="stderr")
    assert logs(capsys, tmp_path) == [
        "[10-11] epoch 1",
        "[10] saved",
        "[11 err] careful",
        "[10-11] epoch 2",
    ]
    assert logs(capsys, tmp_path, "--no-fold", "--stream", "out", "--rank", "11") == [
        "[11] epoch 1",
        "[11] epoch 2",
    ]
    assert logs(capsys, tmp_path, "--grep", "^s") == ["[10] saved"]
    (line,) = logs(capsys, tmp_path, "--grep", "^s", "--json")
    assert json.loads(line) == {
        "time": BEGAN / 1e9 + 3, "attempt": 0, "ranks": [10], "stream": "out", "text": "saved",
    }  # fmt: skip


def test_a_time_in_a_line_is_better_than_that_of_the_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Written in another zone, and seen late: BEGAN is 2026-09-21 14:13:20 UTC.
    put(tmp_path / "logs", 0, [(9, "2026-09-21 16:13:22,000 first")])
    put(tmp_path / "logs", 1, [(5, "second")])
    assert logs(capsys, tmp_path) == ["[10] 2026-09-21 16:13:22,000 first", "[11] second"]


def test_without_an_index_lines_go_by_their_own_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "none_abc"
    put(job, 0, [(0, "2026-09-21T14:13:24Z b"), (0, "more of b")], has_times=False)
    put(job, 1, [(0, "2026-09-21T14:13:22Z a")], has_times=False)
    # As --log-dir was given to torchrun.
    assert [line.split()[-1] for line in logs(capsys, tmp_path)] == ["a", "b", "b"]


def test_without_any_times_lines_go_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        put(tmp_path, rank, [(0, "one"), (0, f"I am {rank}"), (0, "two")], has_times=False)
    assert main([str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out.splitlines() == ["[0-1] one", "[0] I am 0", "[1] I am 1", "[0-1] two"]
    assert "nothing tells when ranks 0-1 wrote their lines" in said.err
    with pytest.raises(UsageError, match="have no times"):
        main([str(tmp_path), "--since", "1h"])


def test_nothing_in_a_line_reaches_the_terminal_but_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs", 0, [(1, "\x1b[31mred\tend"), (2, "10%\r20%\r30%")])
    assert logs(capsys, tmp_path) == ["[10] \\x1b[31mred\tend", "[10] 30%"]
    assert logs(capsys, tmp_path, "--raw", "--grep", "red") == ["[10] \x1b[31mred\tend"]


def test_each_start_of_the_job_comes_after_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "logs", 0, [(5, "again")], attempt=1)
    put(tmp_path / "logs", 0, [(1, "first")])
    assert logs(capsys, tmp_path) == ["[10] first", "-- attempt 2 of the job --", "[10] again"]


def test_later_lines_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path / "logs", 0, [(1, "early"), (20, "late")])
    assert logs(capsys, tmp_path, "--since", "2026-09-21T14:13:30+00:00") == ["[10] late"]
    assert read_since("10m", BEGAN) == BEGAN - 600 * SECOND
    with pytest.raises(UsageError):
        read_since("soon", BEGAN)


def test_a_folder_that_is_no_run_has_no_output_to_keep(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run found here"):
        main([str(tmp_path)])


def test_a_run_that_keeps_nothing_says_what_would(tmp_path: Path) -> None:
    (tmp_path / "attempt_0").mkdir()
    with pytest.raises(UsageError, match="keeps no output") as caught:
        main([str(tmp_path)])
    assert "--redirects 3" in (caught.value.hint or "")
    put(tmp_path / "logs", 0, [(1, "x")])
    with pytest.raises(UsageError, match="it has some of ranks 10"):
        main([str(tmp_path), "--rank", "3"])
    for wrong in (["--rank", "x"], ["--grep", "("]):
        with pytest.raises(UsageError):
            main([str(tmp_path), *wrong])


JOB = """
import os, sys, time
rank = os.environ["RANK"]
print("begin", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print(f"rank {rank}", file=sys.stderr)
print("end")
"""


@pytest.mark.slow
@pytest.mark.ranks
def test_a_job_is_followed_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    environ = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "distdbg"]
    run = [*command, "run", "--nproc-per-node", "2", "--redirects", "3", "--no-agent"]
    run += ["--log-dir", "kept", "--run-dir", "run", "job.py"]
    with subprocess.Popen(run, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL) as job:
        while not list(tmp_path.glob("kept/*/attempt_0/1/.stdout.times")):
            assert job.poll() is None
        with subprocess.Popen(
            [*command, "logs", "run", "--follow"], cwd=tmp_path, env=environ,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        ) as following:  # fmt: skip
            assert following.stdout is not None
            lines = [following.stdout.readline()]
            (tmp_path / "go").touch()
            lines += following.stdout.readlines()
        assert following.returncode == 0
    assert job.returncode == 0
    assert lines[0] == "[0-1] begin\n"
    assert sorted(lines[1:]) == ["[0 err] rank 0\n", "[0-1] end\n", "[1 err] rank 1\n"]
    again = subprocess.run(
        [*command, "logs", "run"], cwd=tmp_path, env=environ, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert sorted(again.stdout.splitlines(keepends=True)) == sorted(lines)
