"""`distdbg analyze`: what it reads, what it prints where, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import distdbg
from distdbg.cli.main import main
from distdbg.record.folders import attempt_folder, place_record, record_name
from distdbg.record.format import Exit
from distdbg.render.schema import faults
from tests.support.record_builder import RecordBuilder
from tests.support.torch_dump_builder import TorchDumpBuilder

Capture = pytest.CaptureFixture[str]
ROOT = Path(distdbg.__file__).parents[1]
SECOND = 10**9


def write_run(folder: Path, *, is_fine: bool = False, run: str = "some-run") -> Path:
    """Two ranks: they meet in an op, then rank 1 returns while rank 0 waits for it in another."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(2):
        build = RecordBuilder(rank=rank, world_size=2, host="n01", run=run, pid=1)
        group = build.add_group("world", ranks="0-1", size=2, rank=rank)
        site = [("/job/train.py", 80, "step")]
        first = build.issue("all_reduce", group, at_ns=SECOND, stack=site)
        build.end(first, after_ns=SECOND)
        build.set_group(group, issued_seq=1, ended_seq=1)
        if rank == 0 and not is_fine:
            build.issue("all_reduce", group, at_ns=3 * SECOND, stack=site)
            build.set_group(group, issued_seq=2, ended_seq=1)
        else:
            build.exit(Exit.RETURNED, at_ns=4 * SECOND)
        (folder / record_name(rank)).write_bytes(build.to_bytes())
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def command(*argv: str, **how) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "distdbg", "analyze", *argv],
        text=True, timeout=120, check=False, cwd=ROOT, **how,
    )  # fmt: skip


def test_a_fault_is_told_and_the_exit_code_is_1(run: Path, capsys: Capture) -> None:
    assert main(["analyze", str(run)]) == 1
    said = capsys.readouterr()
    assert "rank 1" in said.out
    assert "Where it happened: all_reduce #2 on group 'world'" in said.out
    assert "run some-run, 2 ranks" in said.out
    assert said.err == ""


def test_a_job_that_went_well_is_exit_code_0(tmp_path: Path, capsys: Capture) -> None:
    assert main(["analyze", str(write_run(tmp_path / "run", is_fine=True))]) == 0
    assert capsys.readouterr().err == ""


def test_json_is_one_document_of_the_schema(run: Path, capsys: Capture) -> None:
    assert main(["analyze", "--json", str(run)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert list(faults(document)) == []
    assert (document["run"], document["verdict"]["has_faults"]) == ("some-run", True)
    assert document["findings"][document["verdict"]["root"]]["ranks"] == [1]


def test_two_jobs_are_two_verdicts_and_two_pages(
    run: Path, tmp_path: Path, capsys: Capture
) -> None:
    other = write_run(tmp_path / "other", is_fine=True, run="other-run")
    page = tmp_path / "page.html"
    assert main(["analyze", "--json", "--html", str(page), str(run), str(other)]) == 1
    said = capsys.readouterr()
    assert [one["run"] for one in json.loads(said.out)["sessions"]] == ["some-run", "other-run"]
    assert said.err == f"Wrote {page}\nWrote {tmp_path / 'page-2.html'}\n"
    assert "some-run" in page.read_text()
    assert "other-run" in (tmp_path / "page-2.html").read_text()


def test_folders_of_two_hosts_are_one_job(run: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "n02").mkdir()
    (run / record_name(1)).rename(tmp_path / "n02" / record_name(1))
    assert main(["analyze", "--json", str(run), str(tmp_path / "n02")]) == 1
    assert [one["rank"] for one in json.loads(capsys.readouterr().out)["ranks"]] == [0, 1]


def test_earlier_starts_are_a_line_each_and_can_be_asked_for(
    tmp_path: Path, capsys: Capture
) -> None:
    write_run(attempt_folder(tmp_path / "run", 0))
    write_run(attempt_folder(tmp_path / "run", 1), is_fine=True)
    assert main(["analyze", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("attempt 1 of 2 (--attempt 0): ")
    assert "attempt 2 of 2" in said
    assert main(["analyze", "--attempt", "0", str(tmp_path / "run")]) == 1
    assert "attempt 1 of 2" in capsys.readouterr().out
    assert main(["analyze", "--attempt", "7", str(tmp_path / "run")]) == 2
    assert "no start number 7" in capsys.readouterr().err


def test_without_a_path_the_newest_run_of_the_user_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["analyze"]) == 2
    assert "no run of this user on this host" in capsys.readouterr().err
    mine = tmp_path / f"distdbg-{os.getuid()}"
    write_run(mine / "20261121-000000-aaaaaa", run="20261121-000000-aaaaaa")
    write_run(mine / "20261122-000000-bbbbbb", run="20261122-000000-bbbbbb", is_fine=True)
    (mine / "latest").symlink_to("20261122-000000-bbbbbb")
    assert main(["analyze", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == "20261122-000000-bbbbbb"
    assert main(["analyze", "--json", "20261121"]) == 1
    assert json.loads(capsys.readouterr().out)["run"] == "20261121-000000-aaaaaa"
    assert main(["analyze", "2026112"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "UsageError: '2026112' fits 2 runs"
    # To choose by, the newest first.
    assert [line.split(",")[:2] for line in said[1:3]] == [
        ["  20261122-000000-bbbbbb  train.py", " 2 ranks"],
        ["  20261121-000000-aaaaaa  train.py", " 2 ranks"],
    ]
    assert all(line.endswith(" ago") for line in said[1:3])


def test_of_two_runs_of_one_second_the_later_one_is_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("20261121-000000-ffffff", "20261121-000000-000000"):
        _, why = place_record(name, 0, {})
        assert not why
        write_run(tmp_path / f"distdbg-{os.getuid()}" / name, run=name)
    assert main(["analyze", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["run"] == "20261121-000000-000000"


def test_whose_a_dump_is_can_be_said_where_its_name_does_not(
    tmp_path: Path, capsys: Capture
) -> None:
    build = TorchDumpBuilder(2)
    build.all("all_reduce")
    build.op(0, "all_reduce", state="scheduled")
    named = []
    for rank, path in enumerate(build.write(tmp_path)):
        host = tmp_path / f"dump_of_{'ab'[rank]}"
        named += ["--rank", f"{path.rename(host)}={rank}"]
    assert main(["analyze", str(tmp_path)]) != 1
    assert main(["analyze", "--json", *named, str(tmp_path)]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["findings"][0]["ranks"] == [1]
    assert main(["analyze", "--rank", "dump", str(tmp_path)]) == 2
    assert "FILE=RANK is expected" in capsys.readouterr().err


def test_a_page_is_written_whole_and_never_over_another(run: Path, capsys: Capture) -> None:
    page = run / "page.html"
    assert main(["analyze", "--html", str(page), str(run)]) == 1
    assert capsys.readouterr().err == f"Wrote {page}\n"
    assert page.read_text().startswith("<!doctype html>")
    page.write_text("mine")
    assert main(["analyze", "--html", str(page), str(run)]) == 2
    said = capsys.readouterr()
    assert said.err == f"UsageError: --html {page} already exists\n  hint: --force replaces it\n"
    assert "rank 1" in said.out  # the verdict costs no second run
    assert page.read_text() == "mine"
    page.rename(run / "behind.html")
    page.symlink_to("behind.html")
    assert main(["analyze", "--force", "--html", str(page), str(run)]) == 1
    assert page.read_text().startswith("<!doctype html>")
    assert page.is_symlink()
    page.unlink()
    (run / "behind.html").rename(page)
    assert sorted(path.name for path in run.iterdir()) == [
        "page.html", "rank00000.ddr", "rank00001.ddr"
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["", "nowhere/page.html"])
def test_a_place_where_no_page_can_be_is_said_before_anything_is_read(
    place: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main(["analyze", "--html", str(tmp_path / place), "no such run"]) == 2
    assert capsys.readouterr().err.startswith(f"UsageError: --html {tmp_path / place}: ")


@pytest.mark.parametrize("argv", [["gone"], [""], ["--attempt", "-1", "."]])
def test_what_cannot_be_read_is_said_in_one_line(argv: list[str], capsys: Capture) -> None:
    assert main(["analyze", *argv]) in (2, 7)
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) <= 2


def test_a_folder_that_may_not_be_read_is_no_empty_one(
    run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    assert main(["analyze", str(run)]) == 7
    assert capsys.readouterr().err == f"RecordError: {run}: Permission denied\n"


@pytest.mark.slow
def test_a_terminal_without_a_width_can_be_read(run: Path) -> None:
    for columns in ("0", "1", "39"):
        shown = command(str(run), env={**os.environ, "COLUMNS": columns}, stdout=subprocess.PIPE)
        assert max(map(len, shown.stdout.splitlines())) >= 40


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this kernel has no /dev/full")
@pytest.mark.parametrize("flag", ["--json", "--verbose"])
def test_a_full_disk_is_an_error_and_no_bug(run: Path, flag: str) -> None:
    with open("/dev/full", "w") as full:
        done = command(flag, str(run), stdout=full, stderr=subprocess.PIPE)
    assert done.stderr == "UsageError: standard output cannot be written: No space left on device\n"
    assert done.returncode == 2


def test_a_page_on_a_full_disk_leaves_nothing(run: Path, capsys: Capture) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this kernel has no /dev/full")
    assert main(["analyze", "--html", "/dev/full", str(run)]) == 2
    assert "No space left on device" in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(run: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = command("--json", str(run), stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def test_colours_are_for_a_terminal_that_wants_them(run: Path) -> None:
    done = command(str(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_json_loads_neither_rich_nor_arrays(run: Path) -> None:
    program = (
        "import sys; from distdbg.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(' '.join(m for m in ('rich', 'numpy', 'torch', 'distdbg._native',"
        " 'distdbg.render.html', 'distdbg.runtime') if m in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "analyze", "--json", str(run)],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.stderr == ""
