"""What holds over TCP holds over UCX: tests once more, by UCX's own transports that need no fabric.

`tcp` is what hosts have between them, `posix` and `sysv` shared memory; with all, UCX chooses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from ctypes import CDLL
from itertools import product
from pathlib import Path

import pytest

from tests.net.rooms import ROOMS
from tests.net.test_over_tcp import PROGRAM

ROOT = Path(__file__).parents[2]
TLS = ["tcp", "posix,sysv,self", "all"]
#: `make stress` runs these as well: each takes a minute.
STRESS = [
    ("runtime", "tcp"),
    ("check", "tcp"),
    ("check", "posix,sysv,self"),
    ("parity", "posix,sysv,self"),
]


STRESSED = bool(os.environ.get("STRESS_TRANSPORTS"))


@pytest.fixture(autouse=True, scope="module")
def _needs_libucp() -> None:
    try:
        CDLL("libucp.so.0")
    except OSError:
        pytest.skip("libucx0 is not installed")


def over_ucx(*command: str, timeout: float = 500, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "DISTDBG_TRANSPORT": "ucx", **more},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
    )


def run(size: int, program: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return over_ucx("-m", "distdbg", "run", f"--nproc-per-node={size}", str(program), **more)


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.timeout(560)
@pytest.mark.parametrize(
    ("room", "tls"),
    [
        ("runtime", "posix,sysv,self"),
        ("parity", "tcp"),
        *(STRESS if STRESSED else ()),
    ],
)
def test_a_room_passes_over_ucx(room: str, tls: str) -> None:
    done = over_ucx("-m", "pytest", "-q", "-p", "no:cacheprovider", *ROOMS[room], UCX_TLS=tls)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\d\d+ passed", done.stdout)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("size", "tls"),
    list(product((2, 3, 5, 8), TLS))
    if STRESSED
    else [
        *((2, "tcp"), (3, "posix,sysv,self"), (3, "all")),
        pytest.param(5, "tcp", marks=pytest.mark.slow),
        pytest.param(8, "all", marks=pytest.mark.slow),
    ],
)
def test_all_ops_of_all_sizes(size: int, tls: str, tmp_path: Path) -> None:
    """Each number of ranks and each way to send; `make stress` has each with each."""
    program = tmp_path / "ops.py"
    program.write_text(PROGRAM)
    done = run(size, program, UCX_TLS=tls)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("right") == size


SILENT = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group(timeout=60)
rank, size = dist.get_rank(), dist.get_world_size()
for round in range(20):
    x = np.full(round * 5000, rank)
    if rank == 0:
        for peer in range(1, size):
            dist.recv(x, peer)
            assert (x == peer).all()
        time.sleep(0.05)  # the last answers leave while nobody of this rank is in an op
    else:
        dist.send(x, 0)
        works = [dist.isend(x, (rank + 1) % size)] if rank + 1 < size else []
        if rank > 1:
            dist.recv(y := np.zeros_like(x), rank - 1)
            assert (y == rank - 1).all()
        for work in works:
            work.wait()
    if round % 5 == 0:
        dist.all_reduce(np.ones(100_000))
print("right", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.ranks
@pytest.mark.parametrize("tls", TLS)
def test_nothing_stays_behind_when_a_rank_is_elsewhere(tls: str, tmp_path: Path) -> None:
    program = tmp_path / "silent.py"
    program.write_text(SILENT)
    done = run(3, program, UCX_TLS=tls)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("right") == 3


DIES = """
import os, signal, time
import numpy as np
import distdbg as dist

dist.init_process_group(timeout=60)
rank = dist.get_rank()
x = np.ones(2_000_000)
dist.all_reduce(x)
dist.barrier()
if rank == 1:
    time.sleep(0.3)  # what a process has still to hand over dies with it
    os.kill(os.getpid(), signal.SIGKILL)
try:
    while True:
        dist.all_reduce(x)
except dist.PeerLost as error:
    print(f"lost {error.peer}", flush=True)
"""


@pytest.mark.ranks
@pytest.mark.parametrize("tls", TLS)
def test_a_rank_that_dies_is_lost(tls: str, tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(DIES)
    done = run(3, program, UCX_TLS=tls)
    assert done.stdout.count("lost 1") == 2, done.stderr[-4000:]


ABSENT = """
import time
import numpy as np
import distdbg as dist

dist.init_process_group(timeout=60)
rank = dist.get_rank()
dist.barrier()
if rank == 2:
    time.sleep(3)
else:
    try:
        dist.all_reduce(np.ones(10), timeout=1.0)
    except dist.OpTimeout as error:
        print(f"missing {error.missing}", flush=True)
"""


@pytest.mark.ranks
def test_a_timeout_names_who_did_not_come(tmp_path: Path) -> None:
    program = tmp_path / "absent.py"
    program.write_text(ABSENT)
    done = run(3, program)
    assert done.stdout.count("missing [2]") + done.stdout.count("missing (2,)") == 2, (
        done.stdout + done.stderr[-4000:]
    )


SAYS = """
import os
import distdbg as dist
if os.environ["RANK"] == os.environ.get("BLIND_RANK", os.environ["RANK"]):
    os.environ.update(eval(os.environ["CHANGED"]))
try:
    dist.init_process_group(timeout=60)
except dist.ConfigError as error:
    print("said:", str(error).replace(chr(10), " "), flush=True)
"""


@pytest.mark.ranks
def test_tls_rules_ucx_out_in_words(tmp_path: Path) -> None:
    program = tmp_path / "says.py"
    program.write_text(SAYS)
    done = run(2, program, DISTDBG_TLS="1", CHANGED="{}")
    assert done.stdout.count("UCX encrypts nothing") == 2, done.stderr[-4000:]


@pytest.mark.ranks
def test_without_a_way_to_send_every_rank_says_why(tmp_path: Path) -> None:
    program = tmp_path / "says.py"
    program.write_text(SAYS)
    done = run(3, program, CHANGED="{'UCX_TLS': 'none_such'}", BLIND_RANK="1")
    assert done.stdout.count("UCX cannot be used here") == 1, done.stdout + done.stderr[-4000:]
    assert done.stdout.count("rank 1 do") + done.stdout.count("ranks 1 do not use UCX") == 2


# As on hosts with a fabric, where nobody has asked for a transport.
CHOSEN = """
import os
from distdbg.runtime.net import between, hub, ucx
between.find_hosts = lambda members, is_each_alone: tuple((r,) for r in range(len(members)))
ucx.active_fabrics = lambda: ["mlx5_0/1"]
if os.environ["RANK"] == os.environ.get("BLIND_RANK"):
    ucx._libraries = lambda: ["/nowhere/libucp.so.0"]
import numpy as np
import distdbg as dist
nets = []
opened = hub.open_net
hub.open_net = lambda *arguments: nets.append(opened(*arguments)) or nets[-1]
dist.init_process_group(timeout=60)
x = np.ones(10_000)
dist.all_reduce(x)
assert (x == dist.get_world_size()).all()
print("by UCX" if all(net.ucx for net in nets) else "by TCP", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.ranks
@pytest.mark.parametrize(("blind_rank", "how"), [("", "by UCX"), ("1", "by TCP")])
def test_a_fabric_is_used_where_all_ranks_can(blind_rank: str, how: str, tmp_path: Path) -> None:
    program = tmp_path / "chosen.py"
    program.write_text(CHOSEN)
    done = run(3, program, DISTDBG_TRANSPORT="auto", BLIND_RANK=blind_rank, UCX_TLS="tcp")
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count(how) == 3
