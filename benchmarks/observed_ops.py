"""What metrics and traces cost an op: two ranks with an agent that serves and sends everything, and without.

One job after the other, in pairs whose order changes: all ops of a job are timed one by one, and of each
pair the medians are compared. Twice: for a program that knows nothing of OpenTelemetry, and for one that has
a span of its own around every ten ops, which the ranks then write into their records.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.agent import connect
from benchmarks.cases import format_seconds, format_size

RANKS: Final = 2
SIZES: Final = (8, 1 << 20)
_SCRAPES_S: Final = 1.0
_PATIENCE_S: Final = 120.0
EVERYTHING: Final = {"DISTDBG_METRICS": "0", "DISTDBG_OTLP": "all"}
PROGRAMS: Final = {"plain program": "0", "program with spans of its own": "1"}
RANK: Final = """
import json, statistics, sys, time
from contextlib import nullcontext
import numpy as np
import distdbg as dist
seconds, block = float(sys.argv[1]), nullcontext
if sys.argv[2] == "1":
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
    tracer = trace.get_tracer("program")
    block = lambda: tracer.start_as_current_span("step")
dist.init_process_group()
found, go_on = {}, np.ones(1)
for nbytes in map(int, sys.argv[3:]):
    x = np.ones(max(nbytes // 8, 1))
    took = []
    begin = time.perf_counter()
    go_on[0] = 1
    while go_on[0]:
        for _ in range(20):
            with block():
                for _ in range(10):
                    at = time.perf_counter_ns()
                    dist.all_reduce(x, op=dist.ReduceOp.MAX)
                    took.append(time.perf_counter_ns() - at)
        go_on[0] = time.perf_counter() - begin < seconds
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    found[nbytes] = statistics.median(took[len(took) // 5 :])
if dist.get_rank() == 0:
    print(json.dumps(found), flush=True)
dist.destroy_process_group()
"""


def table(rounds: int, seconds: float, endpoint: str) -> list[list[str]]:
    """Rows of text; `endpoint` is of a collector. Takes about `rounds` x 4 x (2 x `seconds` + 2) s."""
    rows = [["program", "all_reduce", "agent alone", "all is asked for", "difference"]]
    for name, traces in PROGRAMS.items():
        pairs: list[list[dict[int, float]]] = []
        for number in range(rounds):
            modes = [{}, EVERYTHING | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}]
            order = (0, 1) if number % 2 else (1, 0)
            found = {which: time_ops(modes[which], traces, seconds) for which in order}
            pairs.append([found[0], found[1]])
        for nbytes in SIZES:
            alone, asked = ([pair[which][nbytes] for pair in pairs] for which in (0, 1))
            differences = [b / a - 1 for a, b in zip(alone, asked, strict=True)]
            quarters = statistics.quantiles(differences, n=4) if rounds > 1 else [0.0, 0.0, 0.0]
            rows.append(
                [
                    name,
                    format_size(nbytes),
                    format_seconds(statistics.median(alone) / 1e9),
                    format_seconds(statistics.median(asked) / 1e9),
                    f"{statistics.median(differences):+.1%} ({quarters[0]:+.1%} to {quarters[2]:+.1%})",
                ]
            )
    return rows


def time_ops(variables: Mapping[str, str], traces: str, seconds: float) -> dict[int, float]:
    """By size, the median of one job's ops in nanoseconds."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = [sys.executable, "-c", RANK, str(seconds), traces, *map(str, SIZES)]
        processes = []
        for rank in range(RANKS):
            environ = os.environ | {
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "DISTDBG_STORE": f"local://{folder}/store",
                "DISTDBG_TOKEN": "of this measurement",
                "DISTDBG_AGENT": "1",
                "TMPDIR": name,
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
                **variables,
            }
            processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE))
        end = threading.Event()
        scraper = threading.Thread(target=_scrape, args=(folder, end))
        try:
            if "DISTDBG_METRICS" in variables:
                scraper.start()
            words, _ = processes[0].communicate(timeout=_PATIENCE_S)
            for process in processes:
                process.wait(_PATIENCE_S)
            return {int(nbytes): took for nbytes, took in json.loads(words).items()}
        finally:
            end.set()
            for process in processes:
                process.kill()
                process.communicate()
            if scraper.ident is not None:
                scraper.join()


def _scrape(folder: Path, end: threading.Event) -> None:
    """Once a second, which is more often than anybody does."""
    with suppress(Exception), connect(folder) as client:
        address = client.ask("about")["metrics"]["address"]
        while not end.wait(_SCRAPES_S):
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
                answer.read()
