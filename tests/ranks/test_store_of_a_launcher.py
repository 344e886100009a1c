"""Ranks that meet at a store which somebody else serves, and which stays when rank 0 has gone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest

import distdbg as dist

PROGRAM = """
import sys, time
import numpy as np, distdbg as dist
dist.init_process_group()
x = np.ones(1)
dist.all_reduce(x)
if dist.get_rank() == 0:
    sys.exit()
pair = dist.new_group([1], use_local_synchronization=True)
print(int(x[0]), dist.get_world_size(pair))
"""


def start(rank: int, environ: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=os.environ
        | environ
        | {"RANK": str(rank), "WORLD_SIZE": "2", "DISTDBG_TIMEOUT_S": "60"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_rank_goes_on_with_the_launchers_store_when_rank_0_is_gone() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60))
    environ = {
        "DISTDBG_STORE": f"launcher://127.0.0.1:{store.port}/start/0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",  # nobody may listen there
    }
    ranks = [start(rank, environ) for rank in (0, 1)]
    texts = [rank.communicate(timeout=120)[0] for rank in ranks]
    store.close()
    assert [rank.returncode for rank in ranks] == [0, 0], texts
    assert texts == ["", "2 1\n"]


def test_a_launcher_that_is_gone_is_named() -> None:
    environ = {"DISTDBG_STORE": "launcher://127.0.0.1:1", "DISTDBG_TIMEOUT_S": "1"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (environ | {"RANK": "0", "WORLD_SIZE": "2"}).items():
            patch.setenv(name, value)
        with pytest.raises(dist.RendezvousError) as caught:
            dist.init_process_group()
    assert "did not reach the store of its launcher at launcher://127.0.0.1:1" in caught.value.what
