"""What metrics and traces cost an op: ranks with an agent that serves and sends everything, and without.

One job after the other, in pairs whose order changes; in each pair a case's time with everything is compared
to that without. First all cases of `make bench`, timed as it does (`bench`). The agent loads its libraries
when it has first something to send: those seconds are shown by themselves, and the cases begin behind them.
Then for a program that has a span of its own around every ten ops, which the ranks write into their records
(`spans`).
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchmarks.agent import connect
from benchmarks.cases import DEFAULT_SIZES, KINDS, Case, format_seconds, format_size, make_cases
from benchmarks.launch import run_ranks
from benchmarks.measure import Limits
from benchmarks.peers import Start
from distdbg.testing.ports import free_port

RANKS: Final = 2
SIZES: Final = (8, 1 << 20)
_SCRAPES_S: Final = 1.0
_PATIENCE_S: Final = 120.0
EVERYTHING: Final = {"DISTDBG_METRICS": "0", "DISTDBG_OTLP": "all"}
#: Measured first, and shown by itself, while the agent loads what it needs: its spans are due after 5 s.
_FIRST: Final = Case("all_reduce", 8)
_FIRST_TIMES: Final = 24
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


def bench(rounds: int, world_size: int, endpoint: str) -> list[list[str]]:
    """Rows of text; `endpoint` is of a collector. A round takes about 40 s."""
    cases = [_FIRST] * _FIRST_TIMES + make_cases(KINDS, DEFAULT_SIZES)
    pairs = [_pair(number, world_size, cases, endpoint) for number in range(rounds)]
    kinds = {"while libraries load": slice(0, _FIRST_TIMES)}
    for kind in KINDS:
        places = [at for at, case in enumerate(cases) if case.kind == kind and at >= _FIRST_TIMES]
        kinds[kind] = slice(places[0], places[-1] + 1)
    kinds["all cases"] = slice(_FIRST_TIMES, len(cases))
    rows = [["ranks", "cases of make bench", "difference", "quarters of the pairs"]]
    for kind, places in kinds.items():
        logs = [statistics.mean(map(_log_ratio, a[places], b[places])) for a, b in pairs]
        rows.append([str(world_size), kind, *_differences([math.exp(log) - 1 for log in logs])])
    return rows


def _pair(
    number: int, world_size: int, cases: list[Case], endpoint: str
) -> tuple[list[float], list[float]]:
    """Seconds by case, with the agent alone and with everything."""
    found: dict[bool, list[float]] = {}
    for is_asked in (False, True) if number % 2 else (True, False):
        port = free_port()
        environ = {"DISTDBG_AGENT": "1"}
        if is_asked:
            asked = {"DISTDBG_METRICS": str(port), "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
            environ |= EVERYTHING | asked
        with _scraped(f"http://127.0.0.1:{port}/metrics" if is_asked else ""):
            outcome = run_ranks("distdbg", Start((), environ), world_size, cases, Limits())
        if outcome.error is not None:
            raise SystemExit(outcome.error)
        found[is_asked] = [statistics.median(line["times_s"]) for line in outcome.lines]
    return found[False], found[True]


def _log_ratio(alone: float, asked: float) -> float:
    return math.log(asked / alone)


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
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        command = [sys.executable, "-c", RANK, str(seconds), *map(str, SIZES)]
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
        try:
            url = ""
            if "DISTDBG_METRICS" in variables:
                with connect(folder) as client:
                    url = f"http://{client.ask('about')['metrics']['address']}/metrics"
            with _scraped(url):
                words, _ = processes[0].communicate(timeout=_PATIENCE_S)
                for process in processes:
                    process.wait(_PATIENCE_S)
            return {int(nbytes): took for nbytes, took in json.loads(words).items()}
        finally:
            for process in processes:
                process.kill()
                process.communicate()


@contextmanager
def _scraped(url: str) -> Iterator[None]:
    """It is read once a second, which is more often than anybody does; '': nothing is."""
    end = threading.Event()

    def scrape() -> None:
        while not end.wait(_SCRAPES_S):
            # Not before it serves, nor when it serves no more.
            with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()

    scraper = threading.Thread(target=scrape)
    if url:
        scraper.start()
    try:
        yield
    finally:
        end.set()
        if url:
            scraper.join()
