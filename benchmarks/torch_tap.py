"""`python -m benchmarks.torch_tap`: what watching a torch job costs it, per op and per DDP step.

`ops`: over a backend that does nothing, so that all there is to measure is torch's way to it and ours; also
with a kernel of Python's that only hands the op on, which is the least that a kernel at torch's dispatcher
costs.
`ddp`: steps on gloo, beside torch's own TORCH_DISTRIBUTED_DEBUG. `idle`: the CPU time of a watched rank that
does nothing.

Each way runs in fresh processes, round after round in turn; the table has medians over rounds of what rank 0
measured. "cpu" is the CPU time of all threads of rank 0, also of those that compare.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks.job import measured_by_rank_0

LIMIT_S: Final = 150
#: How a way differs from a plain job: `tap` is the level at which ours watches.
WAYS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "ops": {
        "plain": {},
        "bare kernel": {"TAP_BENCHMARK_BARE": "1"},
        "tap off": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "off"},
        "tap info": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "info"},
        "tap detail": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "detail"},
    },
    "ddp": {
        "plain": {},
        "tap info": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "info"},
        "tap detail": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "detail"},
        "torch INFO": {"TORCH_DISTRIBUTED_DEBUG": "INFO"},
        "torch DETAIL": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"},
    },
    "idle": {
        "plain": {},
        "tap info": {"DISTDBG_TORCH": "1", "DISTDBG_DEBUG": "info"},
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_tap", description=__doc__)
    parser.add_argument("--cases", default="ops,ddp,idle", help="of ops, ddp and idle")
    parser.add_argument("--ranks", default="2", help="world sizes; of 1 rank there is no check")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes in each")
    parser.add_argument("--ways", help="only these, by commas")
    parser.add_argument("--rank", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        run_rank(args.rank)
        return 0
    for case in args.cases.split(","):
        ways = {
            way: env
            for way, env in WAYS[case].items()
            if not args.ways or way in args.ways.split(",")
        }
        for size in map(int, args.ranks.split(",")):
            found: dict[tuple[str, str], list[float]] = {}
            for _ in range(args.rounds):
                for way, env in ways.items():
                    for name, value in measure(case, env, size).items():
                        found.setdefault((name, way), []).append(value)
            print_table(size, list(ways), found)
    return 0


def print_table(
    size: int, ways: Sequence[str], found: Mapping[tuple[str, str], list[float]]
) -> None:
    """One line for each thing measured and each way, and how far it is from the first way."""
    for name in dict.fromkeys(name for name, _ in found):
        plain = statistics.median(found.get((name, ways[0]), [0.0]))
        for way in ways:
            values = found.get((name, way))
            if values is None:
                print(f"{size} ranks  {name:30} {way:12} failed", flush=True)
                continue
            value = statistics.median(values)
            more = f"{(value - plain) * 1e6:+9.1f} us"
            share = f"{value / plain - 1:+8.1%}" if plain else ""
            spread = f"{min(values) * 1e6:.1f} to {max(values) * 1e6:.1f}"
            print(
                f"{size} ranks  {name:30} {way:12} {value * 1e6:10.1f} us {more} {share}  ({spread})",
                flush=True,
            )


def measure(case: str, env: Mapping[str, str], size: int) -> dict[str, float]:
    """What rank 0 measured; nothing where a rank failed."""
    command = [sys.executable, "-m", "benchmarks.torch_tap", "--rank", case]
    stderr = None if "TAP_BENCHMARK_ERRORS" in os.environ else subprocess.DEVNULL
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        env = {**env, "DISTDBG_RUN_DIR": folder}
        return measured_by_rank_0(command, size, env, LIMIT_S, stderr) or {}


def run_rank(case: str) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if case == "ops":
        register_null(dist)
    dist.init_process_group("null" if case == "ops" else "gloo")
    if os.environ.get("DISTDBG_TORCH") and not is_watched():
        sys.exit("the job is not watched")
    if os.environ.get("TAP_BENCHMARK_BARE"):
        kept = add_bare_kernels(torch)  # noqa: F841 - they live as long as it
    results = {"ops": time_ops, "ddp": time_ddp, "idle": time_idle}[case](dist, torch)
    if dist.get_rank() == 0:
        print(json.dumps(results), flush=True)
    dist.destroy_process_group()


def is_watched() -> bool:
    from distdbg.torch_bridge.guarded import state

    return state["job"] is not None and bool(state["job"].tapped())


def register_null(dist: Any) -> None:
    """A backend in C++ whose ops have ended when they begin."""
    from torch.testing._internal.distributed.fake_pg import _create_fake_pg

    dist.Backend.register_backend("null", _create_fake_pg, extended_api=True, devices=["cpu"])


def add_bare_kernels(torch: Any) -> Any:
    """Kernels that do nothing but hand the op on."""
    key = torch._C.DispatchKey.BackendSelect
    library = torch.library.Library("c10d", "IMPL")

    def kernel_of(redispatch: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(keys: Any, *args: Any) -> Any:
            return redispatch(keys.remove(key), *args)

        return kernel

    for name in ("allreduce_", "_allgather_base_", "send", "recv_"):
        redispatch = getattr(torch.ops.c10d, name).default.redispatch
        library.impl(name, kernel_of(redispatch), "BackendSelect", with_keyset=True)
    return library


def time_ops(dist: Any, torch: Any) -> dict[str, float]:
    x, flat, peer = torch.ones(256), torch.ones(256 * dist.get_world_size()), 1 - dist.get_rank()
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    ops: dict[str, Callable[[], object]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "all_reduce, async and wait": lambda: dist.all_reduce(x, async_op=True).wait(),
        "broadcast": lambda: dist.broadcast(x, 0),
        "all_gather_single": lambda: gather(flat, x),
    }
    if dist.get_world_size() == 2:

        def send_and_recv() -> None:
            first, then = (dist.send, dist.recv) if peer else (dist.recv, dist.send)
            first(x, peer)
            then(x, peer)

        other = torch.empty_like(x)

        def exchange() -> None:
            ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, other, peer)]
            for work in dist.batch_isend_irecv(ops):
                work.wait()

        ops["send, recv"] = send_and_recv
        ops["batch_isend_irecv of two"] = exchange
    results = {}
    store = dist.distributed_c10d._get_default_store()
    for number, (name, op) in enumerate(ops.items()):
        blocks, used = [], []
        for block in range(13):
            meet(store, dist, f"block/{number}/{block}")
            begin, began = time.perf_counter(), time.process_time()
            for _ in range(200):
                op()
            blocks.append((time.perf_counter() - begin) / 200)
            time.sleep(0.02)  # those that compare come to an end
            used.append((time.process_time() - began) / 200)
        results[name] = statistics.median(blocks[2:])
        results[f"{name}, cpu"] = statistics.median(used[2:])
    return results


def meet(store: Any, dist: Any, key: str) -> None:
    """All ranks, without an op."""
    if store.add(key, 1) == dist.get_world_size():
        store.set(f"{key}/go", "")
    store.wait([f"{key}/go"])


def time_ddp(dist: Any, torch: Any) -> dict[str, float]:
    layers = [torch.nn.Linear(256, 256) for _ in range(7)]
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers), bucket_cap_mb=0.5
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batch, steps, began = torch.randn(32, 256), [], 0.0
    for step in range(220):
        if step == 20:
            began = time.process_time()
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        steps.append(time.perf_counter() - begin)
    used = time.process_time() - began
    return {"DDP step": statistics.median(steps[20:]), "DDP step, cpu": used / 200}


def time_idle(dist: Any, torch: Any) -> dict[str, float]:
    """CPU seconds in a second: nothing in flight, then an op that the other rank does not come to."""
    x, store = torch.ones(4), dist.distributed_c10d._get_default_store()
    dist.all_reduce(x)
    time.sleep(1.5)  # threads that nobody needs have ended
    began = time.process_time()
    time.sleep(3)
    results = {"nothing to do, of a second": (time.process_time() - began) / 3}
    began = time.process_time()
    if dist.get_rank() == 0:
        dist.all_reduce(x)
        results["an op waits, of a second"] = (time.process_time() - began) / 3
    else:
        time.sleep(3)
        dist.all_reduce(x)
    meet(store, dist, "over")
    return results


if __name__ == "__main__":
    sys.exit(main())
