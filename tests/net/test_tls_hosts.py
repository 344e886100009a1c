"""A job on two hosts, and what somebody sees who reads along between them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tests.net.test_hosts import output, start
from tests.support.network import Network

pytestmark = [pytest.mark.ranks, pytest.mark.slow]

SECRET = b"who reads this between two hosts has seen the weights"
PROGRAM = f"""
import numpy as np
import distdbg as dist

dist.init_process_group()
rank = dist.get_rank()
words = {SECRET!r}
x = np.frombuffer(words * 2000, np.uint8).copy() if rank == 0 else np.zeros(2000 * len(words), np.uint8)
dist.broadcast(x, 0)
assert x.tobytes() == words * 2000
everybody = [None, None]
dist.all_gather_object(everybody, words)
assert everybody == [words, words]
dist.barrier()
print("whole", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.usefixtures("can_make_hosts")
@pytest.mark.parametrize("is_on", [True, False])
def test_nothing_of_a_job_under_tls_can_be_read_between_its_hosts(
    tmp_path: Path, is_on: bool
) -> None:
    packets: list[bytes] = []
    with Network(2, str(tmp_path), packets.append) as network:
        ranks = start(network, PROGRAM, each=1, DISTDBG_TLS=str(int(is_on)), DISTDBG_TIMEOUT_S="60")
        assert [output(rank) for rank in ranks] == ["whole\n"] * 2
    seen = b"".join(packets)
    assert len(seen) > 2000 * len(SECRET)
    assert (SECRET in seen) is not is_on
    assert (b"distdbgH" in seen) is not is_on
    assert (b"distdbgS" in seen) is not is_on
