"""torch.distributed and distdbg in one process, both from the plain environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.ports import free_port

if TYPE_CHECKING:
    from warm_python import WarmPython

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
def test_the_one_that_comes_second_says_what_to_set(warm_python: WarmPython) -> None:
    port = free_port()
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "1"}
    done = warm_python.run(
        ["-c", PROGRAM.format(port=free_port())],
        env={**os.environ, **place, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, *_, hint, last = done.stdout.splitlines()
    assert first == f"rank 0 cannot listen at tcp://127.0.0.1:{port} for the other ranks"
    assert hint.startswith("  hint: torch.distributed of this process serves its own store there")
    assert last == "both work"
