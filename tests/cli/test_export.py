"""`distdbg export`: which run, where it goes, and that nothing is left of what did not come to its end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest

from distdbg.cli.export import main
from distdbg.errors import RecordError, UsageError
from distdbg.export.formats import FORMATS
from distdbg.export.output import write_file, write_folder
from tests.support.rights import ordinary_rights
from tests.unit.export.small_job import make_job

Export = Callable[..., str]


@pytest.fixture
def export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Export:
    """Runs it on a small job, in an empty folder; returns what it says."""
    make_job(tmp_path / "runs" / "small")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*arguments: object) -> str:
        assert main([str(tmp_path / "runs" / "small"), *map(str, arguments)]) == 0
        return capsys.readouterr().err

    return run


def files() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


def test_the_file_lies_here_and_has_the_name_of_the_run(export: Export) -> None:
    said = export("--to", "perfetto")
    assert files() == ["small.perfetto-trace"]
    assert said.startswith("Wrote small.perfetto-trace: 13 ops of 3 ranks, ")
    assert "ui.perfetto.dev" in said
    assert Path("small.perfetto-trace").stat().st_mode & 0o077 == 0


def test_output_names_a_file_or_a_folder_to_put_it_in(export: Export) -> None:
    Path("folder").mkdir()
    export("--to", "chrome", "--output", "folder")
    export("--to", "chrome", "-o", "named")
    assert Path("folder/small.trace.json").read_bytes() == Path("named").read_bytes()


def test_nothing_is_replaced_without_force(export: Export) -> None:
    Path("small.trace.json").write_text("mine")
    with pytest.raises(UsageError) as caught:
        export("--to", "chrome")
    assert caught.value.what == "small.trace.json already exists"  # nobody has given --output
    assert caught.value.hint == "--force replaces it; --output PATH writes elsewhere"
    with pytest.raises(UsageError) as caught:
        export("--to", "chrome", "--output", "small.trace.json")
    assert caught.value.what == "--output small.trace.json already exists"
    assert Path("small.trace.json").read_text() == "mine"
    export("--to", "chrome", "--force")
    assert json.loads(Path("small.trace.json").read_text())["traceEvents"]


def test_a_dash_is_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(make_job(tmp_path)), "--to", "chrome", "--output", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["otherData"]["run"] == "small"
    assert err == "Wrote 13 ops of 3 ranks\n"


def test_ranks_and_times_choose_what_is_written(export: Export) -> None:
    assert "Wrote small.trace.json: 5 ops of 1 rank," in export("--to", "chrome", "--ranks", "0")
    said = export("--to", "chrome", "--since", "1s", "--force")
    assert "2 ops of 3 ranks" in said
    said = export("--to", "chrome", "--since", "2026-09-21", "--until", "2026-09-22", "--force")
    assert "13 ops of 3 ranks" in said
    assert "0 ops of 3 ranks" in export("--to", "chrome", "--until", "2026-01-01", "--force")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "svg"], "unknown format"),
        (["--to", "chrome", "--ranks", "x"], "--ranks 'x' are not ranks"),
        (["--to", "chrome", "--ranks", "9"], "nothing of ranks 9"),
        (["--to", "chrome", "--ranks", "1-"], "'1-' are not ranks"),
        (["--to", "chrome", "--ranks", ""], "'' are not ranks"),
        (["--to", "chrome", "--ranks=-1"], "'-1' are not ranks"),
        (["--to", "chrome", "--until", "0001-01-01"], "--until '0001-01-01' is no time"),
        (["--to", "chrome", "--output", "x" * 300], "name too long"),
        (["--to", "torch-fr", "--output", "x" * 300], "name too long"),
        (["--to", "chrome", "--since", "soon"], "is no time"),
        (["--to", "chrome", "--until", "3s"], "is no time"),
        (["--to", "chrome", "--attempt", "-1"], "counts from 0"),
        (["--to", "chrome", "--attempt", "3"], "no start number 3"),
        (["--to", "chrome", "--output", "nowhere/x"], "there is no folder"),
    ],
)
def test_what_cannot_be_is_said(export: Export, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        export(*arguments)
    assert files() == []


def test_a_run_that_may_not_be_read_is_said_to_be_that(
    export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    Path("theirs").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(RecordError, match="theirs: Permission denied"):
        main(["theirs", "--to", "chrome"])


def test_the_help_lists_all_formats(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(f"  {kind.name} " in out for kind in FORMATS)


def test_what_the_records_have_lost_is_said(export: Export, tmp_path: Path) -> None:
    record = tmp_path / "runs" / "small" / "rank00001.ddr"
    data = bytearray(record.read_bytes())
    ring = len(data) - 64 * 128  # the last section
    data[ring + 3 * 128 + 16] ^= 0xFF
    record.write_bytes(data)
    said = export("--to", "perfetto")
    assert "1 place in the records is damaged\n" in said
    assert "12 ops of 3 ranks" in said


# ---------------------------------------------------------------------------------------- the file


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def fail(output: BinaryIO) -> None:
        output.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "out", fail)
    assert list(tmp_path.iterdir()) == []


def test_where_each_file_has_a_name_it_is_written_under_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY | os.O_CREAT | os.O_WRONLY)

    def fill(output: BinaryIO) -> None:
        output.write(b"whole")
        assert [path.name[:5] for path in tmp_path.iterdir()] == [".out."]

    assert write_file(tmp_path / "out", fill) == 5
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("out", "whole")]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    def fill(output: BinaryIO) -> None:
        output.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "out").write_text("before")
    with pytest.raises(UsageError, match="out: cannot be written: No space left on device"):
        write_file(tmp_path / "out", fill, force=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_link_stays_one_and_the_file_it_leads_to_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to("elsewhere/out")
    for words in (b"first", b"second"):
        write_file(link, lambda output, words=words: output.write(words), force=True)
        assert link.is_symlink()
        assert [path.read_bytes() for path in folder.iterdir()] == [words]


def test_a_full_device_is_told_of_as_such(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this kernel has no /dev/full")

    def fill(output: BinaryIO) -> None:
        output.write(bytes(1 << 20))

    with pytest.raises(UsageError, match="No space left on device"):
        write_file(Path("/dev/full"), fill)


def test_a_folder_without_permission_is_said(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with ordinary_rights(), pytest.raises(UsageError, match="Permission denied"):
        write_file(tmp_path / "out", lambda output: None)
    tmp_path.chmod(0o700)


def test_a_folder_of_files_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a").write_text("new")

    def fail(folder: Path) -> None:
        fill(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "dumps"
    with pytest.raises(UsageError, match="No space left"):
        write_folder(target, fail)
    assert list(tmp_path.iterdir()) == []
    assert write_folder(target, fill) == 3
    with pytest.raises(UsageError, match="already exists"):
        write_folder(target, fill)
    (target / "a").write_text("old")
    (target / "mine").write_text("kept")
    write_folder(target, fill, force=True)
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        "a": "new",
        "mine": "kept",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["dumps"]


_SLOW = """
import sys, time
from pathlib import Path
from distdbg.export.output import write_file
from tests.support.rights import ordinary_rights

def write(output):
    output.write(b"half")
    print("begun", flush=True)
    time.sleep(600)

write_file(Path(sys.argv[1]), write)
"""


def test_an_own_descriptor_is_written_to_where_it_stands(tmp_path: Path) -> None:
    place = tmp_path / "out.txt"
    with place.open("wb", buffering=0) as output:  # as a shell's > out.txt
        output.write(b"before ")
        write_file(Path(f"/dev/fd/{output.fileno()}"), lambda file: file.write(b"this") and None)
        output.write(b" after")
    assert place.read_bytes() == b"before this after"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert program.stdout is not None
    with program, program.stdout:
        assert program.stdout.readline() == b"begun\n"
        program.send_signal(number)
        assert program.wait(120) != 0
    assert list(tmp_path.iterdir()) == []
