"""The end of a rank that has not destroyed its groups: others may still need the store that it serves."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

from distdbg.runtime.rendezvous.assemble import leave
from distdbg.runtime.rendezvous.join import Membership
from distdbg.runtime.rendezvous.outcome import JoinedRank
from distdbg.runtime.rendezvous.process import ProcessIdentity, identify_self, read_start
from distdbg.runtime.store import TCPStore

HERE = identify_self()
#: A process that lives as long as this test.
PARENT = replace(HERE, pid=os.getppid(), started=read_start(os.getppid()) or 0)
#: No process has this pid and start time.
GONE = replace(HERE, started=1)


def member_of(rank: int, process: ProcessIdentity) -> JoinedRank:
    return JoinedRank(
        rank=rank, world_size=2, local_rank=None, local_world_size=None, process=process
    )


def membership(store: TCPStore, rank: int, *processes: ProcessIdentity) -> Membership:
    return Membership(
        store=store,
        base_store=store,
        rank=rank,
        world_size=2,
        members=tuple(member_of(r, process) for r, process in enumerate(processes)),
        round=0,
        where="tcp://n01:29500",
    )


def test_who_serves_the_store_ends_after_the_others() -> None:
    server = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=60))
    other = TCPStore("127.0.0.1", server.port, timeout=timedelta(seconds=60))
    try:
        with ThreadPoolExecutor(1) as pool:
            ending = pool.submit(membership(server, 0, HERE, PARENT).end, 60.0)
            other.wait(["distdbg/join/0/left/0"])
            assert not ending.done()
            leave(other, 0, 1)
            ending.result(timeout=60)
        membership(other, 1, PARENT, HERE).end(60.0)  # serves nobody, and waits for nobody
        membership(server, 0, HERE, GONE).end(60.0)  # nor is there anybody
        other.delete_key("distdbg/join/0/left/0")
        membership(server, 0, PARENT, PARENT).end(60.0)  # as a child that this rank has forked
        assert not other.check(["distdbg/join/0/left/0"])
    finally:
        other.close()
        server.close()
