"""What holds within a host holds between hosts: tests once more, with each rank a host of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from distdbg.ops.call import Kind
from distdbg.runtime.plan.names import NAMES
from tests.net.rooms import ROOMS
from tests.support.ports import free_port

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import numpy as np
import distdbg as dist

dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
draw = np.random.default_rng(7)
for count in (0, 1, 3, 1000, 50_000, 300_000):
    arrays = [draw.integers(0, 100, count).astype(np.int64) for _ in range(size)]
    mine = arrays[rank]
    x = mine.copy()
    dist.all_reduce(x)
    assert (x == sum(arrays)).all()
    dist.all_reduce(x := mine.astype(np.float64), dist.ReduceOp.AVG)
    assert np.allclose(x, sum(arrays) / size)
    for root in range(size):
        x = mine.copy()
        dist.broadcast(x, root)
        assert (x == arrays[root]).all()
        x = mine.copy()
        dist.reduce(x, root, dist.ReduceOp.MAX)
        if rank == root:
            assert (x == np.max(arrays, axis=0)).all()
        blocks = [np.zeros(count, np.int64) for _ in range(size)] if rank == root else None
        dist.gather(mine, blocks, root)
        if blocks is not None:
            assert all((a == b).all() for a, b in zip(blocks, arrays))
        x = np.zeros(count, np.int64)
        dist.scatter(x, arrays if rank == root else None, root)
        assert (x == mine).all()
    blocks = [np.zeros(count, np.int64) for _ in range(size)]
    dist.all_gather(blocks, mine)
    assert all((a == b).all() for a, b in zip(blocks, arrays))
    x = np.zeros(count, np.int64)
    dist.reduce_scatter(x, [a + 1 for a in arrays])
    assert (x == (mine + 1) * size).all()
    splits = [count // (peer + 2) for peer in range(size)]
    source = np.full(sum(splits), rank, np.int64)
    target = np.full(splits[rank] * size, -1, np.int64)
    dist.all_to_all_single(target, source, [splits[rank]] * size, splits)
    assert (target == np.repeat(np.arange(size), splits[rank])).all()
    y = np.zeros(count, np.int64)
    work = dist.isend(mine, (rank + 1) % size)
    dist.recv(y, (rank - 1) % size)
    work.wait()
    assert (y == arrays[rank - 1]).all()
    dist.barrier()
print("right", flush=True)
dist.destroy_process_group()
"""

#: Which algorithm of the kernel the links use, and which it uses for others.
CONGESTION = """
import os, socket, stat
from contextlib import suppress
import distdbg as dist

def algorithm(of):
    return of.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()

dist.init_process_group()
dist.barrier()
found, of_store = set(), int(os.environ["MASTER_PORT"])
for fd in map(int, os.listdir("/proc/self/fd")):
    with suppress(OSError):
        if stat.S_ISSOCK(os.fstat(fd).st_mode):
            with socket.socket(fileno=os.dup(fd)) as one:
                ports = one.getpeername()[1], one.getsockname()[1]
                if one.family == socket.AF_INET and of_store not in ports:
                    found.add(algorithm(one))
dist.barrier()
with socket.socket() as other:
    print(*found, algorithm(other), flush=True)
dist.destroy_process_group()
"""


def over_tcp(*command: str, timeout: float = 550, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "DISTDBG_TRANSPORT": "tcp", **more},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=ROOT,
    )


@pytest.mark.ranks
def test_bbr_gives_way_to_reno_where_ranks_are_near(tmp_path: Path) -> None:
    env = {**os.environ, "DISTDBG_TRANSPORT": "tcp", "WORLD_SIZE": "2", "TMPDIR": str(tmp_path)}
    env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", CONGESTION],
            env=env | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        for rank in ranks:
            found, of_system = rank.communicate(timeout=60)[0].split()
            assert found == ("reno" if of_system.startswith("bbr") else of_system)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_passes_over_tcp(room: str) -> None:
    done = over_tcp("-m", "pytest", "-q", "-p", "no:cacheprovider", *ROOMS[room])
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"\d\d+ passed", done.stdout)


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("size", "streams"),
    [
        (2, "1"),
        pytest.param(3, "3", marks=pytest.mark.slow),
        pytest.param(5, "1", marks=pytest.mark.slow),
    ],
)
def test_all_ops_of_all_sizes(size: int, streams: str, tmp_path: Path) -> None:
    program = tmp_path / "ops.py"
    program.write_text(PROGRAM)
    done = over_tcp(
        "-m",
        "distdbg",
        "run",
        f"--nproc-per-node={size}",
        str(program),
        DISTDBG_TCP_STREAMS=streams,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("right") == size


@pytest.mark.slow
@pytest.mark.ranks
def test_all_ops_by_each_algorithm(tmp_path: Path) -> None:
    """One job, whose ranks make their groups anew for each algorithm."""
    rules = [
        ",".join(
            f"{kind.label}={algo}"
            for kind, names in NAMES.items()
            if algo in names and kind is not Kind.ALL_TO_ALL
        )
        for algo in sorted({name for names in NAMES.values() for name in names})
    ]
    program = tmp_path / "ops.py"
    program.write_text(
        f"import os\nfor rule in {rules!r}:\n    os.environ['DISTDBG_ALGO'] = rule\n"
        f"    print('rule', rule, flush=True)\n{indent(PROGRAM, '    ')}"
    )
    done = over_tcp("-m", "distdbg", "run", "--nproc-per-node=3", str(program))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.count("right") == 3 * len(rules)


@pytest.mark.ranks
def test_what_rank_0_was_told_counts(tmp_path: Path) -> None:
    program = tmp_path / "ops.py"
    program.write_text(
        "import os\n"
        "if os.environ['RANK'] == '0':\n"
        "    os.environ['DISTDBG_ALGO'] = 'all_reduce=ring'\n"
        "    os.environ['DISTDBG_LINK'] = '1000us,0.01Gb'\n"
        "else:\n"
        "    os.environ['DISTDBG_ALGO'] = 'all_reduce=doubling,broadcast=double_tree'\n" + PROGRAM
    )
    done = over_tcp("-m", "distdbg", "run", "--nproc-per-node=3", str(program))
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("right") == 3


@pytest.mark.ranks
@pytest.mark.parametrize("variable", ["DISTDBG_ALGO", "DISTDBG_LINK"])
def test_a_wrong_rule_is_an_error_on_every_rank(variable: str, tmp_path: Path) -> None:
    program = tmp_path / "ops.py"
    program.write_text(
        "import distdbg as dist\n"
        "try:\n"
        "    dist.init_process_group()\n"
        "except dist.ConfigError as error:\n"
        "    print('said:', error, flush=True)\n"
    )
    done = over_tcp(
        "-m", "distdbg", "run", "--nproc-per-node=2", str(program), **{variable: "wrong"}
    )
    assert done.stdout.count(f"the variable {variable} has 'wrong'; expected") == 2, done.stderr


#: The first group finds a link quick, and each later one would find it slow. Four ranks and 8 MB: of fewer
#: ranks or less, the algorithms for either add in one order.
GROUPS = """
import numpy as np
import distdbg as dist
from distdbg.runtime.plan.link import NetworkLink

NetworkLink.LEAST_LATENCY_S = 1e-6
dist.init_process_group()
rank = dist.get_rank()
mine = np.random.default_rng(rank).standard_normal(2_000_000).astype(np.float32)
first = mine.copy()
dist.all_reduce(first)
NetworkLink.LEAST_LATENCY_S = 1.0
for ranks in ([0, 1, 2, 3], [3, 2, 1, 0]):
    x = mine.copy()
    dist.all_reduce(x, group=dist.new_group(ranks))
    assert x.tobytes() == first.tobytes(), "the sums differ"
dist.destroy_process_group()
dist.init_process_group()
dist.all_reduce(mine)
assert mine.tobytes() == first.tobytes(), "the sums differ after another init"
print("alike", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_groups_of_the_same_hosts_add_in_the_same_order(tmp_path: Path) -> None:
    program = tmp_path / "groups.py"
    program.write_text(GROUPS)
    done = over_tcp("-m", "distdbg", "run", "--nproc-per-node=4", str(program))
    assert done.stdout.count("alike") == 4, done.stderr[-4000:]
