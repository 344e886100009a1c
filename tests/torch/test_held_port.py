"""What torch listens with, on a port that a launcher holds."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from distdbg.launch.ports import HeldPort

if TYPE_CHECKING:
    from warm_python import WarmPython

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

STORE = """
import sys
from torch.distributed import TCPStore
port, use_libuv = int(sys.argv[1]), sys.argv[2] == "libuv"
for _ in range(2):
    store = TCPStore("127.0.0.1", port, is_master=True, use_libuv=use_libuv, wait_for_workers=False)
    store.set("key", "value")
    assert store.get("key") == b"value"
    assert store.port == port
    del store
"""
GROUP = """
import os, sys, torch, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[1], RANK="0", WORLD_SIZE="1")
dist.init_process_group("gloo")
ones = torch.ones(4)
dist.all_reduce(ones)
assert ones.tolist() == [1.0] * 4
dist.destroy_process_group()
"""


def run(warm_python: WarmPython, program: str, *arguments: object) -> None:
    done = warm_python.run(["-c", program, *map(str, arguments)], timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["libuv", "threads"])
def test_torchs_store_listens_on_a_held_port(warm_python: WarmPython, kind: str) -> None:
    with HeldPort() as held:
        run(warm_python, STORE, held.number, kind)


@pytest.mark.slow
def test_a_group_of_gloo_meets_on_a_held_port(warm_python: WarmPython) -> None:
    with HeldPort() as held:
        run(warm_python, GROUP, held.number)
