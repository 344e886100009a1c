"""What every rank does: `program.py SEED STEPS [NAME,..]`, or `--pause NAME`."""

from __future__ import annotations

import os
import random
import sys
import time
from contextlib import nullcontext

import numpy as np

import distdbg as dist
from benchmarks.quiet.pauses import PAUSES, stopped_now_and_then
from benchmarks.quiet.steps import MOST_PAUSE_S, STEPS, Walk


def main(seed: int, count: int, names: list[str]) -> None:
    draw = random.Random(seed)
    joins_late = draw.randrange(8), draw.choice(("imports", "sleeps", "counts", "collects"))
    late_s = draw.choice((0.0, 0.5, 2.0, 4.0))
    drawn = [draw.choice(names) for _ in range(count)]
    leaves_early = draw.randrange(8), draw.choice((0.0, 0.5, 2.0))
    if int(os.environ["RANK"]) == joins_late[0]:
        PAUSES[joins_late[1]](late_s)
    dist.init_process_group()
    walk = Walk(dist.get_rank(), dist.get_world_size())
    walk.make_groups()
    is_harried = seed % 3 == 0 and walk.rank % 2 == 0
    with stopped_now_and_then(seed + walk.rank) if is_harried else nullcontext():
        for at, name in enumerate(drawn):
            STEPS[name](walk, random.Random(f"{seed} {at}"))
    gone, rest_s = leaves_early
    rest = [rank for rank in range(walk.size) if rank != gone]
    others = dist.new_group(rest)
    if walk.rank != gone:
        for _ in range(3):
            if walk.rank == rest[-1]:
                time.sleep(rest_s / 3)  # work of its own
            dist.all_reduce(np.ones(4), group=others)
        dist.destroy_process_group(others)
    elif draw.random() < 0.5:
        return  # without a word
    dist.destroy_process_group()


def pause(name: str) -> None:
    """One rank is busy with one thing while the others wait."""
    dist.init_process_group()
    dist.barrier()
    if dist.get_rank() == 1:
        PAUSES[name](MOST_PAUSE_S)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "--pause":
        pause(sys.argv[2])
        sys.exit()
    chosen = sys.argv[3].split(",") if len(sys.argv) > 3 else sorted(STEPS)
    main(int(sys.argv[1]), int(sys.argv[2]), chosen)
