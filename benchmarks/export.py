"""`python -m benchmarks.export`: how long `distdbg export` takes for a million ops, and how much memory.

For each format, in a process of its own: a run of many ranks with the rings that records usually have, one of
a quarter of the ranks, and one of few ranks with long rings. Memory is the most that the process had: of the
first two it must be the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.machine import describe_machine
from benchmarks.table import align

HEADER = ("format", "run", "ops", "seconds", "target", "MiB written", "peak MiB", "verdict")
#: Of a million ops.
LIMIT_S = 20.0
#: By which four times as many ranks may raise the peak.
MOST_GROWTH = 1.25
#: Ranks, ops of each, and room of a ring.
RUNS = ((64, 4_095, 4_096), (256, 4_095, 4_096), (4, 262_143, 262_144))
Row = tuple[str, ...]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export", description=__doc__)
    parser.add_argument("--formats", default="", help="these alone: perfetto,chrome")
    parser.add_argument("--share", type=float, default=1.0, help="of the ops, for a quick look")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")
    parser.add_argument("--measure", nargs=3, metavar=("FORMAT", "RUN", "TARGET"))
    chosen = parser.parse_args(argv)
    if chosen.measure:
        print(json.dumps(_measure(*chosen.measure)))
        return 0
    for name, value in describe_machine().items():
        print(f"{name:<17} {value}")
    print()
    rows: list[Row] = []
    for name in chosen.formats.split(",") if chosen.formats else _formats():
        rows += _rows(name, chosen.share)
    print(align([HEADER, *rows], left=(0, 1, 7)))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({"machine": describe_machine(), "rows": rows}, indent=1))
    return int(any("MISSED" in row[-1] for row in rows))


def _formats() -> list[str]:
    """Those whose libraries are here."""
    from distdbg.export.formats import FORMATS

    needs = {"parquet": "pyarrow"}
    return [kind.name for kind in FORMATS if find_spec(needs.get(kind.name, "json")) is not None]


def _rows(name: str, share: float) -> list[Row]:
    from benchmarks.made_run import make_run

    rows: list[Row] = []
    before = 0.0
    for ranks, ops, ring in RUNS:
        ops = max(int(ops * share), 8)
        print(f"{name}: {ranks} ranks x {ops:,} ops ...", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="distdbg-export-") as folder:
            run = Path(folder) / "run"
            run.mkdir()
            make_run(run, ranks=ranks, ops=ops, room=ring)
            target = Path(folder) / "exported"
            command = [sys.executable, "-m", "benchmarks.export", "--measure", name, run, target]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=900)
        found = json.loads(done.stdout.splitlines()[-1])
        limit_s = LIMIT_S * max(ranks * ops / 1e6, 0.01)
        verdict = "met" if found["seconds"] <= limit_s else "MISSED"
        if ranks == RUNS[1][0] and found["peak"] > before * MOST_GROWTH:
            verdict += ", memory MISSED"
        before = found["peak"]
        rows.append(
            (
                name,
                f"{ranks} ranks x {ops:,}",
                f"{ranks * ops:,}",
                f"{found['seconds']:.1f}",
                f"{limit_s:.1f}",
                f"{found['nbytes'] / 2**20:.0f}",
                f"{found['peak'] / 2**20:.0f}",
                verdict,
            )
        )
    return rows


def _measure(name: str, run: str, target: str) -> dict[str, float]:
    """One export, as a person would have it."""
    from distdbg.cli.main import main as distdbg

    began = time.perf_counter()
    if code := distdbg(["export", run, "--to", name, "--output", target]):
        raise SystemExit(code)
    seconds = time.perf_counter() - began
    files = [Path(target), *Path(target).rglob("*")]
    nbytes = sum(path.stat().st_size for path in files if path.is_file())
    # Not getrusage: its ru_maxrss begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
    return {"seconds": seconds, "nbytes": nbytes, "peak": peak}


if __name__ == "__main__":
    sys.exit(main())
