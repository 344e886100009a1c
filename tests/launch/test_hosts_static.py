"""A fixed set of hosts, played by launchers on addresses of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.record import folders
from distdbg.testing.hosts import Hosts

pytestmark = pytest.mark.slow

REDUCE = """
import os
import numpy as np
import distdbg as dist

dist.init_process_group()
x = np.arange(4) + dist.get_rank()
dist.all_reduce(x)
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE"
print("place", *(os.environ[name] for name in names.split()), flush=True)
print("where", os.environ["DISTDBG_RUN"], os.environ["DISTDBG_HOST"], os.environ["MASTER_ADDR"],
      os.environ["MASTER_PORT"], flush=True)
print("sum", *x, flush=True)
dist.destroy_process_group()
"""


def test_ranks_of_two_hosts_are_numbered_and_reduce_together(tmp_path: Path) -> None:
    with Hosts(tmp_path) as hosts:
        script = hosts.script(REDUCE)
        roles = ("trainer", "reader", "trainer")
        all_three = [
            hosts.launch(
                n, *hosts.static(3, n), "--nproc-per-node", str(nproc), "--role", roles[n], script
            )
            for n, nproc in enumerate((2, 3, 1))
        ]
        assert [launcher.wait() for launcher in all_three] == [0, 0, 0]
        assert [line for launcher in all_three for line in launcher.lines("place")] == [
            "0 6 0 2 0 trainer 0 3",
            "1 6 1 2 0 trainer 1 3",
            "2 6 0 3 1 reader 0 3",
            "3 6 1 3 1 reader 1 3",
            "4 6 2 3 1 reader 2 3",
            "5 6 0 1 2 trainer 2 3",
        ]
        sums = [line for launcher in all_three for line in launcher.lines("sum")]
        assert sums == ["15 21 27 33"] * 6
        [run_folder] = hosts.run_folders
        where = [line for launcher in all_three for line in launcher.lines("where")]
        assert where == [
            f"{run_folder.name} {hosts.address(host)} {hosts.address(0)} {hosts.port}"
            for host in (0, 0, 1, 1, 1, 2)
        ]
        [attempt] = folders.attempts(run_folder)
        assert sorted(p.name for p in attempt.glob("*.ddr")) == [
            folders.record_name(rank) for rank in range(6)
        ]
        assert sorted(p.name for p in (run_folder / folders.LOGS).iterdir()) == [
            hosts.address(n) for n in range(3)
        ]
