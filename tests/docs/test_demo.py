"""`make demo` shows what it promises, goes on by Enter on a terminal, and leaves no process."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEMO = [sys.executable, str(ROOT / "examples/demo.py")]
LEFT_OUT = ("DISTDBG_", "PYTEST", "CI", "COLUMNS")

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


def environment(folder: Path) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    return {**own, "TMPDIR": str(folder)}


def test_piped_it_runs_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, cwd=ROOT, env=environment(tmp_path), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^\d\. ", done.stdout, flags=re.MULTILINE)[1:]
    fit, mismatch, hang, analysis, frame = parts
    assert "bitwise equal" in fit
    assert "$ distdbg run --nproc-per-node 4 examples/fit.py --wrong-rank 2" in mismatch
    assert mismatch.count("Traceback") == 1
    assert "float32[2,129] on rank 2" in mismatch.partition("  MISMATCH: ")[2]
    drawn = [line for line in (analysis + frame).splitlines() if set(line) & set("│╭─┃")]
    assert drawn
    assert max(map(len, drawn)) <= 80
    assert "$ distdbg run --nproc-per-node 4 --on-deadlock report examples/hang.py" in hang
    assert re.search(r"rank 2 .* hang\.py:\d+ \(ask_for_work\)", hang)
    [page] = re.findall(r"^\$ distdbg analyze --html (\S+)", analysis, re.MULTILINE)
    assert Path(page).read_text().startswith("<!doctype html>")
    assert "ask_for_work" in analysis
    assert "4 ranks" in frame
    assert "waiting" in frame
    assert f"rm -r {Path(page).parent}" in frame.partition("Next:")[2]
    assert "[Enter" not in done.stdout


def test_on_a_terminal_q_ends_it_after_any_part(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            DEMO, cwd=ROOT, env=environment(tmp_path), stdin=slave, stdout=slave, stderr=slave
        ) as demo:
            os.close(slave)
            shown = b""
            with suppress(OSError):  # how a terminal ends
                while chunk := os.read(master, 4096):
                    shown += chunk
                    if shown.endswith(b"quit] "):
                        os.write(master, b"q\n")
            assert demo.wait(60) == 0, shown.decode()
    finally:
        os.close(master)
    assert b"bitwise equal" in shown
    assert shown.count(b"[Enter: next, q: quit]") == 1
    assert b"2. " not in shown
