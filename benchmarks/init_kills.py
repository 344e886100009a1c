"""`python -m benchmarks.init_kills`: ranks killed at random moments of `init_process_group`.

Four ranks, no launcher but for "run". One of them is ended by the kernel (a timer, so no Python runs) at a
random moment of init; each of the others says when it gave up, and whom it named. Without a launcher the
moments begin with the file that it writes 1 ms after its call: before, nobody can know of it. The target:
all within 2 s of the death. Ways to meet:

    tcp     ranks forked by this process, rank 0 serves the store at a port
    local   the same, at a file that says where rank 0 serves it
    file    the same, in a FileStore
    run     `distdbg run`; until the launcher has ended and reported it
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import distdbg as dist
import distdbg.runtime.process.init
import distdbg.runtime.store  # before the forks: it is init that dies, not the import
from benchmarks.machine import describe_machine
from distdbg.errors import DistError
from distdbg.runtime.rendezvous.presence import Presence
from tests.support.ports import free_port

_RANKS = 4
_TARGET_S = 2.0
#: Of the groups, and of this script for the ranks to end.
_TIMEOUT_S = 10.0
WAYS = ("tcp", "local", "file", "run")


@dataclass(frozen=True)
class Ended:
    """What the others said of one death."""

    late_s: float
    named: bool
    words: str


def die_later(after_s: float) -> None:
    """Let the kernel end this process by SIGALRM, wherever it is by then."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(after_s, 1e-6))


def die_after_it_is_known(after_s: float, note: Callable[[], object]) -> None:
    """The same, from the moment on at which others can know of this rank."""
    announce = Presence.announce

    def announce_and_die(presence: Presence) -> None:
        announce(presence)
        note()
        die_later(after_s)

    setattr(Presence, "announce", announce_and_die)  # noqa: B010  # as the type checker wants it


def be_a_rank(url: str, rank: int, victim: int, after_s: float, file: Path) -> None:
    """Meet, and wait for all others once; what ended it goes into the file."""
    fields: dict[str, object] = {"rank": rank}

    def note() -> None:
        file.write_text(json.dumps(fields | {"began": time.monotonic()}))

    note()
    if rank == victim and url == "env://":
        die_later(after_s)
    elif rank == victim:
        die_after_it_is_known(after_s, note)
    try:
        dist.init_process_group(
            init_method=url, rank=rank, world_size=_RANKS, timeout=timedelta(seconds=_TIMEOUT_S)
        )
        fields["made"] = time.monotonic()
        while True:  # the victim may have more time than init takes
            dist.barrier()
    except DistError as error:
        fields |= {"ended": time.monotonic(), "words": str(error)}
    file.write_text(json.dumps(fields))


def kill_one(way: str, victim: int, after_s: float) -> Ended:
    """Start the ranks, have one die, and hear the others."""
    with tempfile.TemporaryDirectory(prefix="k-") as name:
        folder = Path(name)
        if way == "run":
            return _kill_one_of_run(folder, victim, after_s)
        url = {
            "tcp": f"tcp://127.0.0.1:{free_port()}",
            "local": f"local://{folder}/spot",
            "file": f"file://{folder}/store",
        }[way]
        readable, writable = os.pipe()  # closed: begin, so that each is there when one of them dies
        pids = [
            _fork(readable, writable, url, rank, victim, after_s, folder / f"{rank}.json")
            for rank in range(_RANKS)
        ]
        os.close(writable)
        os.close(readable)
        deadline = time.monotonic() + _TIMEOUT_S + 10
        for pid in pids:
            _reap(pid, deadline)
        said = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(_RANKS)]
    died = said[victim]["began"] + after_s
    others = [one for one in said if one["rank"] != victim]
    if any("ended" not in one for one in others):
        return Ended(float("inf"), named=False, words="hung")
    last = max(others, key=lambda one: one["ended"])
    unnamed = [one["words"] for one in others if not _names(victim, one["words"])]
    return Ended(last["ended"] - died, not unnamed, (unnamed or [last["words"]])[0])


def _names(victim: int, words: str) -> bool:
    return re.match(rf"[^\n]*\brank {victim}\b", words) is not None


def _fork(
    readable: int, writable: int, url: str, rank: int, victim: int, after_s: float, file: Path
) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.close(writable)
        os.read(readable, 1)
        os.environ |= {"DISTDBG_AGENT": "0", "TMPDIR": str(file.parent)}
        tempfile.tempdir = None
        be_a_rank(url, rank, victim, after_s, file)
        code = 0
    finally:
        os._exit(code)


def _reap(pid: int, deadline: float) -> None:
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return
        time.sleep(0.002)


def _kill_one_of_run(folder: Path, victim: int, after_s: float) -> Ended:
    command = [sys.executable, "-m", "distdbg", "run", f"--nproc-per-node={_RANKS}", "-m"]
    ended = subprocess.run(
        [*command, "benchmarks.init_kills", f"--rank-of-run={folder} {victim} {after_s}"],
        env=os.environ | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    now = time.monotonic()
    began = json.loads((folder / f"{victim}.json").read_text())["began"]
    words = next((w for w in ended.stderr.splitlines() if w.startswith("RANK DIED")), ended.stderr)
    return Ended(now - began - after_s, _names(victim, words), words)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.init_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="of each way; a tenth of it for run")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--within", type=float, default=0.05, help="seconds from the call of init")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rank-of-run", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank_of_run:
        folder, victim, after_s = chosen.rank_of_run.rsplit(" ", 2)
        rank = int(os.environ["RANK"])
        be_a_rank("env://", rank, int(victim), float(after_s), Path(folder) / f"{rank}.json")
        return 0
    print(", ".join(f"{name}: {value}" for name, value in describe_machine().items()))
    print(f"{'':<6} {'kills':>6} {'named':>6} {'in 2 s':>7} {'median':>9} {'worst':>9}")
    dist.run_threads(dist.barrier, 2)  # before the forks: it is init that dies, not an import
    is_met = True
    for way in chosen.ways.split(","):
        chance = random.Random(chosen.seed)
        kills = max(1, chosen.kills // 10) if way == "run" else chosen.kills
        found = []
        for _ in range(kills):
            victim, after_s = chance.randrange(_RANKS), chance.uniform(0, chosen.within)
            ended = kill_one(way, victim, after_s)
            found.append(ended)
            if not ended.named or ended.late_s > _TARGET_S:
                first = ended.words.partition("\n")[0]
                print(
                    f"  rank {victim} after {after_s * 1e3:.1f} ms: {ended.late_s:.1f} s: {first}",
                    flush=True,
                )
                is_met = False
        soon = sum(ended.late_s <= _TARGET_S for ended in found)
        named = sum(ended.named for ended in found)
        late = [ended.late_s for ended in found]
        print(
            f"{way:<6} {kills:>6} {named:>6} {soon:>7} {statistics.median(late):>7.3f} s "
            f"{max(late):>7.3f} s",
            flush=True,
        )
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
