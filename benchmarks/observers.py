"""`python -m benchmarks.observers`: what metrics and traces cost the agent, and how long a scrape takes.

Ranks do bursts of ops with pauses between them. Their agent first serves nothing, then metrics that a
real Prometheus scrapes, then metrics and spans, which go to a collector here that takes them and forgets
them. Shown are its share of a core and its memory; of scrapes, the median of how long they take, and their
size. Further tables show what all of it costs the ranks' ops. In all some fifteen minutes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import observed_ops
from benchmarks.agent import connect, share
from benchmarks.job import start_with_agent
from benchmarks.machine import describe_machine
from benchmarks.table import align
from tests.support.collector import forgetting_collector
from tests.support.prometheus import prometheus

#: Ops between two pauses, in two groups.
BURST = 20
RANK = f"""
import sys, time
import numpy as np
import distdbg as dist
dist.init_process_group()
x, go_on = np.ones(2, np.float32), np.ones(1)
half = dist.get_world_size() // 2
sides = [dist.new_group(range(first, first + half), group_desc="side") for first in (0, half)]
side = sides[dist.get_rank() >= half]
end = time.monotonic() + float(sys.argv[1])
while go_on[0]:
    for _ in range({BURST // 2}):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        dist.all_reduce(x, op=dist.ReduceOp.MAX, group=side)
    time.sleep(float(sys.argv[2]))
    go_on[0] = time.monotonic() < end
    dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
dist.destroy_process_group()
"""
CONFIG = """\
global: {{scrape_interval: {interval}s, scrape_timeout: {interval}s}}
scrape_configs:
  - job_name: distdbg
    honor_labels: true
    static_configs: [{{targets: ["{address}"]}}]
"""
WARM_UP_S = 10.0
#: What was collected is kept for half a second.
SCRAPES, BETWEEN_S = 30, 0.6
#: What the ranks' agent is asked to do.
MODES = {
    "nothing": {},
    "metrics": {"DISTDBG_METRICS": "0"},
    "metrics and traces": {"DISTDBG_METRICS": "0", "DISTDBG_OTLP": "traces"},
}


@dataclass(frozen=True, slots=True)
class Cost:
    cpu: float
    """A share of a core."""
    rss_mib: float
    ops_per_s: float = 0.0
    scrape_ms: float = 0.0
    """The median of some that follow each other."""
    scrape_kib: float = 0.0
    series: int = 0
    spans_per_s: dict[str, float] = field(default_factory=dict)
    """By what became of them."""

    def row(self, ranks: int, mode: str) -> list[str]:
        has_scrapes = self.series > 0
        return [
            str(ranks),
            mode,
            f"{self.cpu:.2%}",
            f"{self.rss_mib:.0f} MiB",
            f"{self.ops_per_s:.0f}" if has_scrapes else "",
            ", ".join(
                f"{name} {rate:.0f}" for name, rate in self.spans_per_s.items() if rate >= 0.5
            ),
            f"{self.scrape_ms:.1f} ms" if has_scrapes else "",
            f"{self.scrape_kib:.0f} KiB" if has_scrapes else "",
            str(self.series) if has_scrapes else "",
        ]


def rss_mib(pid: int) -> float:
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
    )


def scrape(url: str) -> tuple[float, int]:
    """The median time of some scrapes, and the bytes of one."""
    took = []
    for _ in range(SCRAPES):
        time.sleep(BETWEEN_S)
        begin_s = time.perf_counter()
        with urllib.request.urlopen(url, timeout=10) as answer:
            nbytes = len(answer.read())
        took.append(time.perf_counter() - begin_s)
    return statistics.median(took), nbytes


def measure(ranks: int, mode: str, seconds: float, interval: int, pause_s: float) -> Cost:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        forgetting_collector() as endpoint,
    ):
        folder = Path(name)
        otlp = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        command = [sys.executable, "-c", RANK, str(seconds + 300), str(pause_s)]
        # The last words of ranks that are killed are many, and of no use.
        processes = start_with_agent(
            folder, ranks, command, MODES[mode] | otlp, stderr=subprocess.DEVNULL
        )
        try:
            with connect(folder) as client:
                while len(client.ask("ranks")["ranks"]) < ranks:
                    time.sleep(0.1)
                # Until all of them are in their loop, and what a short job sends at once is sent.
                time.sleep(WARM_UP_S)
                about = client.ask("about")
                if mode == "nothing":
                    cpu = share(client, seconds, listens=False)
                    return Cost(cpu, rss_mib(about["pid"]))
                address = about["metrics"]["address"]
                place = folder / "prometheus"
                place.mkdir()
                with prometheus(place, CONFIG.format(interval=interval, address=address)) as server:
                    server.until("up == 1", 4.0 * interval + 10)
                    cpu = share(client, seconds, listens=False)
                    window = f"[{seconds:.0f}s]"
                    ops = server.query(f"sum(rate(distdbg_ops_total{window}))")
                    spans = server.query(
                        f"sum by (outcome) (rate(distdbg_agent_spans_total{window}))"
                    )
                    series = server.query("sum(scrape_samples_scraped)")
                took_s, nbytes = scrape(f"http://{address}/metrics")
                return Cost(
                    cpu,
                    rss_mib(about["pid"]),
                    ops[0][1][0][1],
                    1e3 * took_s,
                    nbytes / 1024,
                    int(series[0][1][0][1]),
                    {labels["outcome"]: points[0][1] for labels, points in spans},
                )
        finally:
            for process in processes:
                process.kill()
            for process in processes:
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observers", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[8, 64])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measurement")
    parser.add_argument("--interval", type=int, default=5, help="seconds between two scrapes")
    parser.add_argument("--rounds", type=int, default=8, help="pairs of jobs whose ops are timed")
    parser.add_argument(
        "--turns", type=float, default=75.0, help="seconds of a job in windows; 0: none"
    )
    parser.add_argument("--op-seconds", type=float, default=1.0, help="of the ops of one size")
    parser.add_argument("--pause", type=float, default=0.1, help=f"seconds after {BURST} ops")
    chosen = parser.parse_args()
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    rows = [["ranks", "asked for", "CPU", "memory", "ops/s", "spans/s", "scrape", "size", "series"]]
    for ranks in chosen.ranks:
        for mode in MODES:
            cost = measure(ranks, mode, chosen.seconds, chosen.interval, chosen.pause)
            rows.append(cost.row(ranks, mode))
            print("  ".join(rows[-1]), file=sys.stderr)
    if chosen.ranks:
        print(align(rows))
    with forgetting_collector() as endpoint:
        if chosen.turns:
            print(f"\n{align(observed_ops.windows(chosen.turns, endpoint))}", flush=True)
        if chosen.rounds:
            print(f"\n{align(observed_ops.spans(chosen.rounds, chosen.op_seconds, endpoint))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
