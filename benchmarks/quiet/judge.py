"""Runs one right program under `distdbg run`, and says what was wrongly said of it."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.diagnose.finding import Severity
from distdbg.diagnose.load.run_folder import load_run
from distdbg.diagnose.verdict import diagnose
from distdbg.record.folders import attempt_folder
from tests.support.jobs import running

LIMIT_S = 240.0
_SAID = re.compile(r"^distdbg: (.*)", re.MULTILINE)
_STOPPED = re.compile(r"rank (\d+) is stopped")
_GOES_ON = re.compile(r"rank (\d+) goes on: no longer stopped")


@dataclass(slots=True)
class Quiet:
    """What came of one job."""

    name: str
    ranks: int
    ops: int = 0
    complaints: tuple[str, ...] = ()
    taken_back: int = 0
    """Lines about a stopped rank that went on."""


def run_quietly(
    name: str,
    argv: Sequence[str],
    ranks: int,
    environ: Mapping[str, str] | None = None,
    is_caught: bool = False,
) -> Quiet:
    """Run it to its end; every complaint is a false verdict, or a failure of the program.

    `is_caught`: the records may say what the program has caught.
    """
    with tempfile.TemporaryDirectory(prefix="q-") as folder:
        flags = [f"--nproc-per-node={ranks}", "--shutdown-timeout=2"]
        with running([*flags, *argv], Path(folder), environ, has_agent=True) as job:
            try:
                done = job.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                return Quiet(name, ranks, complaints=(f"has not ended after {LIMIT_S:.0f} s",))
            run_folder = job.run_folder
        complaints: list[str] = []
        if done.code:
            complaints.append(f"ended with code {done.code}: {_last(done.out + done.err)}")
        said = _SAID.findall(done.err)
        stops = [line for line in said if _STOPPED.match(line)]
        returns = [line for line in said if _GOES_ON.match(line)]
        complaints += [f"said: {line}" for line in said if line not in (*stops, *returns)]
        if len(stops) != len(returns):
            complaints.append(f"not taken back, or twice: {[*stops, *returns]}")
        complaints += _in_the_folder(attempt_folder(run_folder, 0))
        ops, later = _later(run_folder)
        complaints += [] if is_caught else later
        return Quiet(name, ranks, ops, tuple(complaints), len(returns))


def _in_the_folder(attempt: Path) -> list[str]:
    path = attempt / "verdict.json"
    if not path.exists():
        return []
    plain: dict[str, Any] = json.loads(path.read_text())
    return [
        f"in verdict.json: {finding['severity']}: {finding['what']}"
        for finding in plain["findings"]
        if finding["severity"] != "note"
    ]


def _later(run_folder: Path) -> tuple[int, list[str]]:
    """How many ops are in the records, and what is found there."""
    session = load_run(run_folder)
    ops = sum(log.lost.get("ops", 0) + len(log.ops) for log in session.ranks.values())
    found = diagnose(session).findings
    return ops, [
        f"later: {finding.kind} {finding.severity}: {finding.what}"
        for finding in found
        if finding.severity is not Severity.NOTE
    ]


def _last(text: str) -> str:
    return " | ".join(text.splitlines()[-30:])
