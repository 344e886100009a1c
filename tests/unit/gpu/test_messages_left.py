"""Groups that are left without destroy_process_group(), while a thread serves their messages.

The GPU is a stand-in.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import DistError
from distdbg.runtime.backends.gpu import chunks, held_copies
from distdbg.runtime.process import world as worlds
from tests.unit.gpu.stand_in import Machine

CHUNK = 4096
NBYTES = 10 * CHUNK


SERVING = "distdbg-gpu-messages"


def serving() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == SERVING]


# Its Work is dropped, which is told; pytest would keep what the warning came from.
@pytest.mark.filterwarnings("ignore::distdbg.check.latent.LatentWarning")
@pytest.mark.parametrize("hangs", [False, True])
def test_a_group_that_is_collected_in_the_middle_of_a_message_leaves_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hangs: bool
) -> None:
    """Rank 0 forgets all: its message ends before the memory goes that it was moved through."""
    monkeypatch.setattr(chunks, "CHUNK_NBYTES", CHUNK)
    monkeypatch.setenv("DISTDBG_GPU_IPC", "off")
    forgotten: list[weakref.ref[Any]] = []
    reported: list[str] = []

    has_hung = threading.Event()

    def hang(nbytes: int) -> None:
        if dist.get_rank() == 0:
            machine.hangs.add(0)
            has_hung.set()

    def rank_main(rank: int) -> None:
        with worlds.use(worlds.World()):
            dist.init_process_group(init_method=f"file://{tmp_path}/store", rank=rank, world_size=2)
            x = machine.array(np.zeros(NBYTES), np.uint8)
            first: Any = dist.irecv(x, 1) if rank == 0 else dist.isend(x, 0)
            first.wait()
            assert serving()
            if rank == 0:
                if hangs:
                    machine.on_copy = hang
                work: Any = dist.irecv(x, 1, tag=1)
                dist.send(np.zeros(1), 1, tag=2)
                if hangs:
                    assert has_hung.wait(20.0)
                assert work is not None
                forgotten.append(weakref.ref(dist.group.WORLD))
                answers = (
                    worlds.current().stack_signal
                )  # of the process, which has it until its end
                if answers is not None:
                    answers.close()
                return
            dist.recv(np.zeros(1), 0, tag=2)
            with pytest.raises(DistError) as ended:
                dist.send(x, 0, tag=1 if hangs else 3)
            reported.append(ended.value.what)
            dist.destroy_process_group()

    threads = [threading.Thread(target=rank_main, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    threads[0].join(30.0)
    until = time.monotonic() + 20.0
    while any(ref() is not None for ref in forgotten) and time.monotonic() < until:
        gc.collect()  # again where the thread was just at it
    assert [ref() for ref in forgotten] == [None]
    threads[1].join(30.0)
    for thread in threading.enumerate():
        if thread.name == SERVING:
            thread.join(10.0)
    assert not serving()
    assert "rank 0" in reported[0]
    assert len(held_copies._held) == int(hangs)
    held_copies._held.clear()
    gc.collect()  # and what it was held in
