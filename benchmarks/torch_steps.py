"""`python -m benchmarks.torch_steps`: a training step watched and on our backend, beside a plain one on gloo.

A plain job on gloo, watched ones, and one on the backend "distdbg" live side by side and take turns of a few
steps in random order, so a busy machine disturbs them alike. The table has medians over turns of what rank 0
used in a step: time, CPU time of its main thread and of all threads, and how often its threads began to wait;
and the median of differences in pairs to the plain job. What the second plain job is apart from the first is
noise. `torch info` and `torch detail` are plain jobs with TORCH_DISTRIBUTED_DEBUG. `low` is the 10th
percentile of the CPU time of the main thread in a step, which a busy machine changes least, and `quick` that
of the time. Below, the CPU time by thread.

With `--bucket-mb 25` buckets are as DDP makes them by default; small ones show what a bucket costs. Other
trainings than DDP's are in torch_trainings.py.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from benchmarks.job import torch_environs
from benchmarks.torch_trainings import TRAININGS, make_step

LIMIT_S: Final = 60
#: Tells the ranks of all jobs how large a bucket of DDP may be.
BUCKET_MB: Final = "TORCH_STEPS_BUCKET_MB"
#: The backend of each job, and how it differs from a plain one.
JOBS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "plain": ("gloo", {}),
    "plain again": ("gloo", {}),
    "info": ("gloo", {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "info"}),
    "detail": ("gloo", {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "detail"}),
    "torch info": ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "INFO"}),
    "torch detail": ("gloo", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
    "distdbg": ("distdbg", {}),
}
#: Torch's DETAIL crashes in asynchronous ops of gloo: it is measured where it is asked for.
USUAL: Final = "plain,plain again,info,detail,torch info,distdbg"
#: What is measured of a step: milliseconds, then counts.
FACTS: Final = ("time", "quick", "low", "main", "all", "waits")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_steps", description=__doc__)
    parser.add_argument("--models", default="mlp,convolution", help="see torch_trainings.py")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each job")
    parser.add_argument("--steps", type=int, default=15, help="in each turn")
    parser.add_argument("--ranks", default="2", help="world sizes")
    parser.add_argument("--jobs", default=USUAL, help="the first is what others differ from")
    parser.add_argument(
        "--bucket-mb", type=float, default=1, help="of DDP, whose own default is 25"
    )
    parser.add_argument("--rank", nargs=2, metavar=("BACKEND", "MODEL"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        run_rank(*args.rank, float(os.environ[BUCKET_MB]))
        return 0
    models = args.models.split(",")
    for unknown in set(models) - set(TRAININGS):
        parser.error(f"there is no training {unknown!r}: {', '.join(TRAININGS)}")
    os.environ[BUCKET_MB] = str(args.bucket_mb)
    names = args.jobs.split(",")
    for size in map(int, args.ranks.split(",")):
        for model in models:
            print_table(
                f"{model}, {size} ranks", measure(names, model, size, args.rounds, args.steps)
            )
    return 0


def measure(
    names: Sequence[str], model: str, size: int, rounds: int, steps: int
) -> dict[str, list[dict[str, Any]]]:
    """By job, what rank 0 used in each of its turns."""
    found: dict[str, list[dict[str, Any]]] = {job: [] for job in names}
    with ExitStack() as stack:
        jobs = {job: start(stack, model, size, *JOBS[job]) for job in names}
        for ranks in jobs.values():
            for rank in ranks:
                rank.stdout.readline()  # it is ready
        for turn in range(rounds + 1):
            for job in random.sample(names, len(names)):
                for rank in jobs[job]:
                    rank.stdin.write(f"{steps}\n")
                    rank.stdin.flush()
                answer, *_ = [json.loads(rank.stdout.readline()) for rank in jobs[job]]
                if turn:  # the first one warms up
                    found[job].append(answer)
        for ranks in jobs.values():
            for rank in ranks:
                rank.stdin.close()
                rank.wait(LIMIT_S)
    return found


def start(
    stack: ExitStack, model: str, size: int, backend: str, env: Mapping[str, str]
) -> list[Any]:
    """The ranks of a job, which wait to be told how many steps to do."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    ranks = []
    for environ in torch_environs(size, {**env, "DISTDBG_RUN_DIR": folder}):
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.torch_steps", "--rank", backend, model],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(process.kill)
        ranks.append(process)
    return ranks


def print_table(model: str, found: Mapping[str, list[dict[str, Any]]]) -> None:
    """A line for each job, and one for each of its threads."""
    print(
        f"a step of {model}" + "".join(f"{fact:>18}" for fact in FACTS) + "       CPU", flush=True
    )
    plain = next(iter(found.values()))
    for job, turns in found.items():
        line = f"{job:8}"
        for fact in FACTS:
            value = statistics.median(turn[fact] for turn in turns)
            more = statistics.median(a[fact] - b[fact] for a, b in zip(turns, plain, strict=True))
            line += f"{value:10.3f} {more:+7.3f}"
        share = statistics.median(a["all"] / b["all"] for a, b in zip(turns, plain, strict=True))
        print(f"  {line}  {share - 1:+7.1%}", flush=True)
    for job, turns in found.items():
        names = sorted({name for turn in turns for name in turn["threads"]})
        used = {n: statistics.median(turn["threads"].get(n, 0) for turn in turns) for n in names}
        words = (f"{name} {value:.3f}" for name, value in used.items() if value >= 0.001)
        print(f"  {job:8} ms of CPU by thread: {', '.join(words)}", flush=True)


def run_rank(backend: str, name: str, bucket_mb: float) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    step = make_step(torch, dist, name, bucket_mb)
    for _ in range(10):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        before, begin = look_at_threads(), time.perf_counter()
        began, main_began = time.process_time(), time.thread_time()
        each, clock = [], []
        for _ in range(steps):
            step_began, cpu_began = time.perf_counter(), time.thread_time()
            step()
            each.append(time.thread_time() - cpu_began)
            clock.append(time.perf_counter() - step_began)
        used = {
            "time": time.perf_counter() - begin,
            "main": time.thread_time() - main_began,
            "all": time.process_time() - began,
        }
        answer: dict[str, Any] = {fact: value / steps * 1e3 for fact, value in used.items()}
        answer["low"] = statistics.quantiles(each, n=10)[0] * 1e3
        answer["quick"] = statistics.quantiles(clock, n=10)[0] * 1e3
        threads: dict[str, float] = {}
        waits = 0
        for tid, (called, used_ns, count) in look_at_threads().items():
            _, used_before_ns, count_before = before.get(tid, ("", 0, 0))
            threads[called] = threads.get(called, 0) + (used_ns - used_before_ns) / steps / 1e6
            waits += count - count_before
        print(json.dumps(answer | {"waits": waits / steps, "threads": threads}), flush=True)
    dist.destroy_process_group()


def look_at_threads() -> dict[int, tuple[str, int, int]]:
    """By thread: what it is called, the CPU time it has used, and how often it began to wait."""
    names = {thread.native_id: thread.name for thread in threading.enumerate()}
    found = {}
    for word in os.listdir("/proc/self/task"):
        folder = f"/proc/self/task/{word}"
        try:
            used_ns = int(read(f"{folder}/schedstat").split()[0])
            waits = read(f"{folder}/status").split("\nvoluntary_ctxt_switches:")[1].split()[0]
            found[int(word)] = (names.get(int(word)) or read(f"{folder}/comm"), used_ns, int(waits))
        except OSError:  # it has ended
            continue
    return found


def read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read().strip()


if __name__ == "__main__":
    sys.exit(main())
