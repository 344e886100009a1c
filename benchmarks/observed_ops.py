"""What metrics and traces cost the ops of ranks that leave no core to their agent: two on two cores.

`windows`: a job of blocks of 10 ms, as `make bench` has them, whose agent is stopped (SIGSTOP) in each third
second. What the blocks take while it works is compared to what they take in the second behind: their median,
which `make bench` shows, and their mean, in which each moment counts that the agent takes from a rank. It has
2 s to catch up with 3, so its share is overstated by a half.

`spans`: jobs in pairs with and without, for a program that has a span of its own around every ten ops, which
its ranks write into their records.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.agent import connect
from benchmarks.cases import format_seconds, format_size
from benchmarks.job import start_with_agent
from distdbg.client.agent_client import AgentClient

RANKS: Final = 2
SIZES: Final = (8, 1 << 20)
#: A scrape, more often than most do.
_SCRAPES_S: Final = 5.0
_PATIENCE_S: Final = 120.0
EVERYTHING: Final = {"DISTDBG_METRICS": "0", "DISTDBG_OTLP": "all"}
_WORKS_S: Final = 2.0
_STANDS_S: Final = 1.0
#: Until its libraries are loaded and what a job may send at once is sent.
_WARM_UP_S: Final = 10.0
BLOCKS: Final = """
import json, sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
x, go_on, rows = np.ones(int(sys.argv[2]) // 4, np.float32), np.ones(1), []
end = time.monotonic() + float(sys.argv[1])
began = time.perf_counter()
for _ in range(200):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
count = np.array([max(1, int(2.0 / (time.perf_counter() - began)))])
dist.all_reduce(count, op=dist.ReduceOp.MAX)
while go_on[0]:
    for _ in range(20):
        dist.barrier()
        began = time.perf_counter()
        for _ in range(count[0]):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
        rows.append((time.monotonic(), (time.perf_counter() - began) / count[0]))
    go_on[0] = time.monotonic() < end
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
if dist.get_rank() == 0:
    print(json.dumps(rows), flush=True)
dist.destroy_process_group()
"""
RANK: Final = """
import json, statistics, sys, time
import numpy as np
import distdbg as dist
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
seconds = float(sys.argv[1])
trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("program")
dist.init_process_group()
found, go_on = {}, np.ones(1)
for nbytes in map(int, sys.argv[2:]):
    x = np.ones(max(nbytes // 8, 1))
    took = []
    begin = time.perf_counter()
    go_on[0] = 1
    while go_on[0]:
        for _ in range(20):
            with tracer.start_as_current_span("step"):
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


def windows(seconds: float, endpoint: str) -> list[list[str]]:
    """Rows of text; `endpoint` is of a collector. Takes six times `seconds` and a quarter of a minute."""
    rows = [["all_reduce", "agent", "an op takes", "median of blocks", "mean of blocks", "windows"]]
    everything = EVERYTHING | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    for nbytes in (8, 64 << 10, 1 << 20):
        for name, variables in {"alone": {}, "exports everything": everything}.items():
            blocks, turns = _in_turns(nbytes, seconds, variables)
            medians, means = [], []
            for began_s, stopped_s, ended_s in turns:
                works = [took for at, took in blocks if began_s < at < stopped_s]
                # A block that has begun while it worked is of neither.
                stands = [took for at, took in blocks if stopped_s + 0.02 < at < ended_s]
                medians.append(statistics.median(works) / statistics.median(stands) - 1)
                means.append(statistics.mean(works) / statistics.mean(stands) - 1)
            rows.append(
                [
                    format_size(nbytes),
                    name,
                    format_seconds(statistics.median(took for _, took in blocks)),
                    _estimate(medians),
                    _estimate(means),
                    str(len(turns)),
                ]
            )
    return rows


def _in_turns(
    nbytes: int, seconds: float, variables: Mapping[str, str]
) -> tuple[list[tuple[float, float]], list[tuple[float, float, float]]]:
    """When blocks ended and what their ops took; when the agent began to work, stood and worked again."""
    turns = []
    seconds = max(seconds, 4 * (_WORKS_S + _STANDS_S))  # of fewer windows nothing can be said
    with _job(BLOCKS, (_WARM_UP_S + seconds, nbytes), variables) as (processes, client):
        time.sleep(_WARM_UP_S)
        about = client.ask("about")
        metrics = about["metrics"]
        end_s, scraped_s = time.monotonic() + seconds - _WORKS_S - _STANDS_S, 0.0
        try:
            while (began_s := time.monotonic()) < end_s:
                if metrics and metrics["address"] and began_s - scraped_s > _SCRAPES_S:
                    scraped_s = began_s
                    _scrape(f"http://{metrics['address']}/metrics")
                time.sleep(max(0.0, began_s + _WORKS_S - time.monotonic()))
                stopped_s = time.monotonic()
                os.kill(about["pid"], signal.SIGSTOP)
                time.sleep(_STANDS_S)
                turns.append((began_s, stopped_s, time.monotonic()))
                os.kill(about["pid"], signal.SIGCONT)
        finally:
            with suppress(ProcessLookupError):
                os.kill(about["pid"], signal.SIGCONT)
        words, _ = processes[0].communicate(timeout=_PATIENCE_S)
    return json.loads(words), turns


def _estimate(found: Sequence[float]) -> str:
    """The median, and how far off it may be."""
    return (
        f"{statistics.median(found):+.2%} +-{statistics.stdev(found) / math.sqrt(len(found)):.2%}"
    )


def _differences(found: list[float]) -> list[str]:
    low, _, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    return [f"{statistics.median(found):+.1%}", f"{low:+.1%} to {high:+.1%}"]


def spans(rounds: int, seconds: float, endpoint: str) -> list[list[str]]:
    """Rows of text; takes about `rounds` x 2 x (2 x `seconds` + 2) s."""
    rows = [["all_reduce within spans", "agent alone", "everything", "difference", "quarters"]]
    modes = {False: {}, True: EVERYTHING | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}}
    pairs: list[dict[bool, dict[int, float]]] = []
    for number in range(rounds):
        order = (False, True) if number % 2 else (True, False)
        pairs.append({is_asked: time_ops(modes[is_asked], seconds) for is_asked in order})
    for nbytes in SIZES:
        alone, asked = ([pair[which][nbytes] for pair in pairs] for which in (False, True))
        rows.append(
            [
                format_size(nbytes),
                format_seconds(statistics.median(alone) / 1e9),
                format_seconds(statistics.median(asked) / 1e9),
                *_differences([b / a - 1 for a, b in zip(alone, asked, strict=True)]),
            ]
        )
    return rows


def time_ops(variables: Mapping[str, str], seconds: float) -> dict[int, float]:
    """By size, the median of one job's ops in nanoseconds."""
    with _job(RANK, (seconds, *SIZES), variables) as (processes, client):
        metrics = client.ask("about")["metrics"]
        end_s = time.monotonic() + _PATIENCE_S
        while processes[0].poll() is None and time.monotonic() < end_s:
            if metrics and metrics["address"]:
                with suppress(OSError):  # it is just over
                    _scrape(f"http://{metrics['address']}/metrics")
            with suppress(subprocess.TimeoutExpired):
                processes[0].wait(_SCRAPES_S)
        words, _ = processes[0].communicate(timeout=_SCRAPES_S)
    return {int(nbytes): took for nbytes, took in json.loads(words).items()}


@contextmanager
def _job(
    program: str, words: Sequence[object], variables: Mapping[str, str]
) -> Iterator[tuple[list[subprocess.Popen[bytes]], AgentClient]]:
    """Ranks and a client of their agent; killed at the end of the block if they have not ended."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = [sys.executable, "-c", program, *map(str, words)]
        processes = start_with_agent(folder, RANKS, command, variables, stdout=subprocess.PIPE)
        try:
            with connect(folder) as client:
                yield processes, client
            for process in processes:
                process.wait(_PATIENCE_S)
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def _scrape(url: str) -> None:
    with urllib.request.urlopen(url, timeout=5) as answer:
        answer.read()
