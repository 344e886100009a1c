"""The text of a line: of files below the reader's folder alone, and never of what is no source."""

from __future__ import annotations

import io
import os
import time

import pytest
import render_examples as examples
from rich.console import Console

from distdbg.diagnose.finding import Evidence, Finding, FindingKind, Severity, Verdict
from distdbg.diagnose.session import Session
from distdbg.record.recorded_frame import RecordedFrame
from distdbg.render.html import to_html
from distdbg.render.source_line import SourceLines, with_whole_name
from distdbg.render.text import print_verdict

LATER_NS = time.time_ns() + 10**15


def text(folder, file, line=1, most=60, newest_ns=LATER_NS) -> str:
    return SourceLines(str(folder), newest_ns).text_of(RecordedFrame(str(file), line, "f"), most)


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "job" / "a.py"
    path.parent.mkdir()
    path.write_text("import x\n    dist.recv(x, 1)  \n\x1b[2J" + "y" * 200 + "\n")
    return path


def test_a_line_is_shown_without_its_indent_and_cut(program) -> None:
    assert text(program.parent, program, 2) == "dist.recv(x, 1)"
    cut = text(program.parent, program, 3)
    assert cut.isprintable()
    assert cut.endswith(" ...")
    assert len(cut) <= 60


@pytest.mark.parametrize("line", [-1, 0, 4, 5, 2**31])
def test_a_line_that_is_not_there_has_no_text(program, line: int) -> None:
    assert text(program.parent, program, line) == ""


def test_a_file_that_was_changed_after_the_run_began_has_no_text(program) -> None:
    changed_ns = program.stat().st_mtime_ns
    assert text(program.parent, program, newest_ns=changed_ns) == "import x"
    assert text(program.parent, program, newest_ns=changed_ns - 10**9) == ""


def test_only_files_below_the_readers_folder_are_read(program, tmp_path) -> None:
    (tmp_path / "jobs").mkdir()
    assert text(tmp_path / "jobs", program) == ""
    assert text("", program) == ""
    assert text(tmp_path / "jobs", f"{tmp_path}/jobs/../job/a.py") == ""
    assert text(tmp_path, "a.py") == ""
    link = tmp_path / "jobs" / "b.py"
    link.symlink_to(program)
    assert text(tmp_path / "jobs", link) == ""


def test_nothing_but_small_regular_source_is_opened(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.py")  # would be waited for
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "key").write_text("secret\n")
    (tmp_path / "key.py").symlink_to(tmp_path / "key")
    with open(tmp_path / "huge.py", "wb") as file:
        file.truncate(1 << 40)
    names = ("pipe.py", "folder.py", "zero.py", "key", "key.py", "huge.py", "none.py", "\0.py")
    for name in names:
        assert text(tmp_path, f"{tmp_path}/{name}") == ""
    for name in (
        "/dev/zero",
        "/proc/self/environ",
        "/proc/self/fd/0",
        "/etc/passwd",
        "",
        "x" * 9999,
    ):
        assert text("/", name) == ""


def test_many_files_are_not_all_read(tmp_path) -> None:
    lines = SourceLines(str(tmp_path), LATER_NS)
    for at in range(100):
        (tmp_path / f"{at}.py").write_text("x\n")
    shown = [lines.text_of(RecordedFrame(f"{tmp_path}/{at}.py", 1, "f"), 9) for at in range(100)]
    assert shown.count("x") == 64


def test_a_short_name_is_made_whole_where_one_file_has_it() -> None:
    short, known = (
        RecordedFrame("a.py", 4, "f"),
        [RecordedFrame("/job/a.py", 9, "g"), RecordedFrame("/job/b.py", 1, "h")],
    )
    assert with_whole_name(short, known) == RecordedFrame("/job/a.py", 4, "f")
    assert with_whole_name(short, [*known, RecordedFrame("/lib/a.py", 1, "x")]) == short


def test_it_stands_below_its_place_in_the_text_and_on_the_page(program) -> None:
    session, verdict = examples.deadlock()
    session.now_ns = LATER_NS
    for at, stack in enumerate(session.stacks):
        session.stacks[at] = tuple(frame._replace(file=str(program), line=2) for frame in stack)
    out = io.StringIO()
    folder = str(program.parent)
    print_verdict(Console(file=out, width=80), session, verdict, folder=folder)
    assert "    a.py:2 (swap)\n      dist.recv(x, 1)\n" in "".join(
        f"{line.rstrip()}\n" for line in out.getvalue().splitlines()
    )
    assert "\n    dist.recv(x, 1)" in to_html(session, verdict, folder=folder)
    assert "dist.recv" not in to_html(session, verdict)


def test_a_finding_without_stacks_shows_the_lines_that_it_names(program) -> None:
    session = Session(source="x", now_ns=LATER_NS)
    session.stacks.append(
        (RecordedFrame(str(program), 2, "step"), RecordedFrame("/lib/b.py", 3, "other"))
    )
    sites = ("a.py:2 (step)", "a.py:2 (step)", "b.py:3 (other)", "c.py:1 (nobody)")
    evidence = tuple(Evidence(text="rank 0 comes late", site=site) for site in sites)
    root = Finding(
        kind=FindingKind.STRAGGLER,
        severity=Severity.WARNING,
        what="x",
        ranks=(0,),
        evidence=evidence,
    )
    verdict = Verdict(what="x", root=root, findings=(root,), roles={}, lacks=())
    out = io.StringIO()
    folder = str(program.parent)
    print_verdict(Console(file=out, width=80), session, verdict, folder=folder)
    shown = "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())
    assert shown.endswith("The lines\n  a.py:2 (step)\n    dist.recv(x, 1)\n")
    page = to_html(session, verdict, folder=folder)
    assert "<h2>The lines</h2>" in page
    assert "dist.recv(x, 1)" in page
    session.stacks.append(
        (RecordedFrame("/elsewhere/a.py", 2, "step"),)
    )  # which of the two is not known
    assert "dist.recv" not in to_html(session, verdict, folder=folder)
