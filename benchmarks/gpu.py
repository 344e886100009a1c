"""`python -m benchmarks.gpu`: arrays on GPUs, ours beside torch's nccl and gloo, in one run.

    nccl           distdbg over NCCL, CuPy arrays           one rank per GPU
    torch nccl     torch.distributed over NCCL              one rank per GPU
    ipc            distdbg's own engine, ranks open each other's memory on the GPU
    chunks         the same through pinned memory in chunks, as between hosts; messages too
    torch gloo     torch.distributed over gloo, CUDA tensors

Each way runs in fresh processes; ways that need more GPUs than there are, and those whose library is not
installed, say so in the table. An op's time is that of its slowest rank. `copy GB/s` is the bandwidth of a
copy inside of the GPU, in the same run, by one rank while the others wait: bytes read and written a second.
`moved` is the share of it that an op reaches, where all ranks are on one GPU: by the bytes that the op has to
read and write there on all ranks together. `faster` is how many times faster than torch gloo.

Without a GPU it says so, measures nothing and ends with exit code 1. `--plan` prints what would be run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

#: The last one is what the others are compared with.
WAYS = ("nccl", "torch nccl", "ipc", "chunks", "torch gloo")
#: Our own engine's: what DISTDBG_GPU_IPC is for each.
OWN = {"ipc": "on", "chunks": "off"}
#: "send" is from rank 0 to rank 1.
OPS = ("all_reduce", "all_gather", "broadcast", "all_to_all", "send")
MIB = 1 << 20
LIMIT_S = 240
ROUNDS = 7


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--ranks", type=numbers, default=[1, 2, 4], help="world sizes: 1,2,4")
    parser.add_argument(
        "--mib", type=numbers, default=[1, 64, 1024], help="sizes of the array, in MiB: 1,64,1024"
    )
    parser.add_argument(
        "--limit", type=float, default=LIMIT_S, help="seconds that one way may take"
    )
    parser.add_argument("--plan", action="store_true", help="print what would be run here")
    parser.add_argument("--rank", nargs=2, metavar=("WAY", "MIB"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        print(json.dumps(run_rank(args.rank[0], int(args.rank[1]))), flush=True)
        return 0
    gpus = count_gpus()
    if args.plan:
        show_plan(args.ranks, args.mib, gpus)
        return 0
    if not gpus:
        print("there is no GPU here (no /dev/nvidia0): nothing was measured")
        return 1
    print(
        f"{'ranks':>5} {'MiB':>5} {'op':11} {'way':11} {'median':>11} {'GB/s':>8} {'copy GB/s':>9} "
        f"{'moved':>6} {'faster':>7}"
    )
    for size in args.ranks:
        for mib in args.mib:
            found = {way: measure_if_possible(way, size, mib, gpus, args.limit) for way in WAYS}
            for way in WAYS:
                show(way, size, mib, gpus, found[way], found[WAYS[-1]])
    return 0


def numbers(text: str) -> list[int]:
    """Some, as in '1,64'."""
    found = [int(word) for word in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def show_plan(sizes: Sequence[int], mibs: Sequence[int], gpus: int) -> None:
    """A line for each job."""
    print(f"{gpus} GPUs here")
    for size in sizes:
        for mib in mibs:
            for way in WAYS:
                reported = why_not(way, size, gpus) or f"ranks on GPUs {devices_of(size, gpus)}"
                print(f"{size:5} {mib:5} {way:11} {reported}")


def why_not(way: str, size: int, gpus: int) -> str | None:
    """Why a way cannot be measured with so many ranks; None where it can."""
    if not gpus:
        return "needs a GPU"
    is_too_many = way.endswith("nccl") and size > gpus
    return f"needs {size} GPUs, there are {gpus}" if is_too_many else None


def devices_of(size: int, gpus: int) -> list[int]:
    """The number of each rank's GPU."""
    return [rank % gpus for rank in range(size)]


def measure_if_possible(
    way: str, size: int, mib: int, gpus: int, limit_s: float
) -> dict[str, float] | str:
    """What the ranks measured, or why there is nothing."""
    return why_not(way, size, gpus) or measure(way, size, mib, gpus, limit_s)


def show(
    way: str,
    size: int,
    mib: int,
    gpus: int,
    found: dict[str, float] | str,
    slowest: dict[str, float] | str,
) -> None:
    """The lines of one way."""
    if isinstance(found, str):
        print(f"{size:5} {mib:5} {'':11} {way:11} {found}", flush=True)
        return
    for each in lines_of(size, mib, gpus, found, slowest):
        line = f"{each.seconds * 1e3:8.3f} ms {each.rate:8.1f} {found['copy']:9.0f}"
        line += f" {'':6}" if each.moved is None else f" {each.moved:6.0%}"
        if each.faster is not None:
            line += f" {each.faster:6.1f}x"
        print(f"{size:5} {mib:5} {each.op:11} {way:11} {line}", flush=True)


class Line(NamedTuple):
    """What was found of one op, one way."""

    op: str
    seconds: float
    #: GB of the array per second.
    rate: float
    #: Of the copy bandwidth; None where the ranks do not share one GPU.
    moved: float | None
    #: Than torch gloo; None where that has nothing.
    faster: float | None


def lines_of(
    size: int, mib: int, gpus: int, found: dict[str, float], slowest: dict[str, float] | str
) -> list[Line]:
    """One for each op that the way has."""
    lines = []
    for op in OPS:
        if op not in found:
            continue
        moved = None
        if gpus == 1 and size > 1:
            moved = moved_mib(op, size, mib) * MIB / found[op] / 1e9 / found["copy"]
        has_base = not isinstance(slowest, str) and op in slowest
        faster = slowest[op] / found[op] if has_base else None  # type: ignore[index]  # a dict then
        lines.append(Line(op, found[op], mib * MIB / found[op] / 1e9, moved, faster))
    return lines


def moved_mib(op: str, size: int, mib: int) -> int:
    """What all ranks together have to read and write on the GPU that they share."""
    if op in ("all_reduce", "all_to_all"):
        return 2 * size * mib  # each array is read and written once
    if op == "all_gather":
        return 2 * size * size * mib  # each rank copies all of them
    if op == "send":
        return 2 * mib
    return 2 * (size - 1) * mib


def count_gpus() -> int:
    """By their device files: no process has to use CUDA for it."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def environments(size: int, gpus: int, port: int) -> list[dict[str, str]]:
    """By which each rank knows its place."""
    return [
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_RANK": str(rank),
            "DEVICE": str(device),
        }
        for rank, device in enumerate(devices_of(size, gpus))
    ]


def measure(way: str, size: int, mib: int, gpus: int, limit_s: float) -> dict[str, float] | str:
    """What the ranks measured, or why there is nothing: the last words of the first rank that failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.gpu", "--rank", way, str(mib)]
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            start(command, {**os.environ, **own}, Path(folder, own["RANK"]))
            for own in environments(size, gpus, port)
        ]
        try:
            failed = await_ranks(ranks, time.monotonic() + limit_s)
        finally:
            for process in ranks:
                process.kill()
                process.wait()
        if failed is None:
            return f"no end within {limit_s:g} s"
        if failed >= 0:
            reported = last_words(Path(folder, f"{failed}.err").read_text())
            return reported or f"rank {failed}: exit code {ranks[failed].returncode}"
        reported: list[dict[str, float]] = [
            json.loads(Path(folder, f"{rank}.out").read_text().splitlines()[-1])
            for rank in range(size)
        ]
        return {name: max(each[name] for each in reported) for name in reported[0]}


def last_words(text: str) -> str:
    """The line of an error: the last one that is not indented, as its details and hints are."""
    lines = [re.sub(r"^\[rank \d+\] ", "", line) for line in text.splitlines()]
    return next((line for line in reversed(lines) if line.strip() and not line[0].isspace()), "")


def start(command: Sequence[str], environ: dict[str, str], path: Path) -> subprocess.Popen[bytes]:
    """A rank that writes to PATH.out and PATH.err."""
    with open(f"{path}.out", "wb") as out, open(f"{path}.err", "wb") as err:
        return subprocess.Popen(command, env=environ, stdout=out, stderr=err)


def await_ranks(ranks: Sequence[subprocess.Popen[bytes]], deadline: float) -> int | None:
    """-1 when all have ended well, or the first that has not; None at the deadline.

    The others of one that has failed may wait for it for long.
    """
    while time.monotonic() < deadline:
        codes = [process.poll() for process in ranks]
        for rank, code in enumerate(codes):
            if code:
                return rank
        if None not in codes:
            return -1
        time.sleep(0.05)
    return None


def run_rank(way: str, mib: int) -> dict[str, float]:
    """One rank: seconds per op, and the bandwidth of a copy in GB/s."""
    return (run_torch if way.startswith("torch") else run_ours)(way, mib)


def run_ours(way: str, mib: int) -> dict[str, float]:
    import cupy

    import distdbg as dist

    device = int(os.environ["DEVICE"])
    cupy.cuda.Device(device).use()
    if way in OWN:
        os.environ["DISTDBG_GPU_IPC"] = OWN[way]
    dist.init_process_group("gloo" if way in OWN else way, device_id=device)
    size, count = dist.get_world_size(), mib * MIB // 4
    x, other = cupy.ones(count, "float32"), cupy.empty(count, "float32")
    gathered = cupy.empty(size * count, "float32")
    wait = cupy.cuda.Device(device).synchronize
    ops = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather_into_tensor(gathered, x),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_to_all": lambda: dist.all_to_all_single(other, x),
    }
    if size > 1:
        ops["send"] = lambda: pass_on(dist, x)
    found = {name: seconds_of(op, wait, dist.barrier) for name, op in ops.items()}
    found["copy"] = copy_rate(dist, lambda: cupy.copyto(other, x), wait, mib * MIB)
    dist.destroy_process_group()
    return found


def run_torch(way: str, mib: int) -> dict[str, float]:
    import torch
    import torch.distributed as dist

    device = int(os.environ["DEVICE"])
    torch.cuda.set_device(device)
    dist.init_process_group(way.removeprefix("torch "))
    size, count = dist.get_world_size(), mib * MIB // 4
    x = torch.ones(count, device="cuda")
    other = torch.empty_like(x)
    gathered = torch.empty(size * count, device="cuda")
    parts = list(gathered.split(count))
    wait = torch.cuda.synchronize
    ops: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_gather": lambda: dist.all_gather(parts, x),
        "broadcast": lambda: dist.broadcast(x, 0),
    }
    if way == "torch nccl":  # its gloo has neither for CUDA tensors in every version
        ops["all_to_all"] = lambda: dist.all_to_all_single(other, x)
        if size > 1:
            ops["send"] = lambda: pass_on(dist, x)
    found = {name: seconds_of(op, wait, dist.barrier) for name, op in ops.items()}
    found["copy"] = copy_rate(dist, lambda: other.copy_(x), wait, mib * MIB)
    dist.destroy_process_group()
    return found


def copy_rate(dist: Any, copy: Callable[[], Any], wait: Callable[[], Any], nbytes: int) -> float:
    """GB per second on rank 0, and 0 on the others, which may share its GPU: they only wait meanwhile."""
    dist.barrier()
    is_mine = dist.get_rank() == 0
    rate = 2 * nbytes / seconds_of(copy, wait, wait) / 1e9 if is_mine else 0.0
    dist.barrier()
    return rate


def pass_on(dist: Any, x: Any) -> None:
    """A message from rank 0 to rank 1."""
    if dist.get_rank() == 0:
        dist.send(x, 1)
    elif dist.get_rank() == 1:
        dist.recv(x, 0)


def seconds_of(op: Callable[[], Any], wait: Callable[[], Any], meet: Callable[[], Any]) -> float:
    """The median of some rounds, each with the device idle before and after."""
    times = []
    for _ in range(ROUNDS + 2):
        meet()
        wait()
        started = time.perf_counter()
        op()
        wait()
        times.append(time.perf_counter() - started)
    return statistics.median(times[2:])


if __name__ == "__main__":
    sys.exit(main())
