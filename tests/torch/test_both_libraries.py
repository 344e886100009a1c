"""torch.distributed and distdbg in one process, both from the plain environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from distdbg.testing.ports import free_port

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]

PROGRAM = """
from datetime import timedelta
import torch.distributed
import distdbg as dist
torch.distributed.init_process_group("gloo")
try:
    dist.init_process_group(timeout=timedelta(seconds=30))
except dist.RendezvousError as error:
    print(error)
dist.init_process_group(init_method="tcp://127.0.0.1:{port}", rank=0, world_size=1)
dist.barrier()
torch.distributed.barrier()
dist.destroy_process_group()
torch.distributed.destroy_process_group()
print("both work")
"""


@pytest.mark.slow
@pytest.mark.ranks
def test_the_one_that_comes_second_says_what_to_set() -> None:
    port = free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(port=free_port())],
        env={**os.environ, **place, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, *_, hint, last = done.stdout.splitlines()
    assert first == f"rank 0 cannot listen at tcp://127.0.0.1:{port} for the other ranks"
    assert hint.startswith("  hint: torch.distributed of this process serves its own store there")
    assert last == "both work"
