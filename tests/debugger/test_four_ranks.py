"""Four ranks and clients at terminals: who stops, who waits, and what the clock does meanwhile."""

from __future__ import annotations

import re
import signal
import time
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROMPT = r"\(Pdb\) "
#: Ranks 1-3 wait for rank 0, which is stopped, with a limit of 2 s, in one way after the other; then
#: once more, and it does not come.
WAITS = """
    import time
    from datetime import timedelta
    import numpy as np
    import distdbg as dist
    from distdbg.debugger.session import stop_here

    x, two = np.ones(2), timedelta(seconds=2)
    ways = {
        "op": lambda: dist.all_reduce(x, timeout=2.0),
        "work": lambda: dist.all_reduce(x, async_op=True).wait(two),
        "barrier": lambda: dist.monitored_barrier(timeout=2.0),
        "new_group": lambda: dist.new_group([0, 1, 2, 3], timeout=2.0),
        "store": lambda: store.wait(["word"], two) if rank else store.set("word", b"come"),
    }
    dist.init_process_group()
    store = dist.FileStore("words", 4)
    rank = dist.get_rank()
    dist.barrier()
    for way, meet in ways.items():
        if rank == 0:
            stop_here(f"before {way}")
        meet()
        print("met by", way, flush=True)
    if rank > 0:
        begin = time.monotonic()
        try:
            dist.all_reduce(np.ones(2), timeout=2.0)
        except dist.DistError as error:
            print(type(error).__name__, round(time.monotonic() - begin, 1), flush=True)
        store.set(f"told{rank}", b"")
    else:
        store.wait(["told1", "told2", "told3"], timedelta(seconds=60))
"""
#: How long rank 0 is stopped before each.
WAYS = {"op": 10.0, "work": 3.0, "barrier": 3.0, "new_group": 3.0, "store": 3.0}
STEPS = """
    import numpy as np
    import distdbg as dist

    def step(n):
        x = np.full(2, float(n))
        dist.all_reduce(x, group=group)
        return x[0]

    dist.init_process_group()
    group = dist.new_group([0, 1, 2, 3], group_desc="dp")
    dist.barrier()
    print("sums", [int(step(n)) for n in range(5)], flush=True)
"""
MEETS = """
    from datetime import timedelta
    import numpy as np
    import distdbg as dist

    def step():
        mine = dist.get_rank()
        dist.breakpoint(rank=[0, 3], timeout_s=600)
        return mine

    dist.init_process_group()
    dist.group.WORLD.set_timeout(timedelta(seconds=2))  # an interpreter may need longer to start
    x = np.full(2, step(), np.float64)
    dist.all_reduce(x)
    print("sum", x[0], flush=True)
"""


@pytest.mark.slow
def test_a_limit_of_two_seconds_stands_while_a_rank_is_stopped_and_counts_again_after_it(
    ranks_of: Any,
) -> None:
    ranks_of.start(WAITS, 4)
    ranks_of.until_stopped()
    with ranks_of.attach() as client:
        for way, stop_s in WAYS.items():
            client.expect(PROMPT)
            time.sleep(stop_s)  # what is tested
            for rank in range(4):
                assert f"met by {way}" not in ranks_of.out(rank)
                assert ranks_of.processes[rank].poll() is None
            client.go_on()
    assert ranks_of.wait() == [0, 0, 0, 0]
    assert "met by store" in ranks_of.out(0)
    for rank in (1, 2, 3):
        said = re.search(r"met by store\n(\w+) ([\d.]+)", ranks_of.out(rank))
        assert said, ranks_of.out(rank)
        # The first of them breaks the group, which the others may be told instead.
        assert said[1] in ("OpTimeout", "CollectiveError")
        assert 1.5 < float(said[2]) < 30.0


def test_conditions_choose_one_rank_and_one_op_of_four(ranks_of: Any) -> None:
    rule = "rank=2,kind=all_reduce,group=dp,seq>=3,hits=1"
    ranks_of.start(STEPS, 4, DISTDBG_BREAK=rule)
    ranks_of.until_stopped(2)
    with ranks_of.attach(2) as client:
        assert "before all_reduce #3 on group 'dp'" in client.expect(PROMPT)
        client.type("x[:] = 100\n")  # nothing of the op is sent yet
        client.expect(PROMPT)
        client.go_on()
    assert ranks_of.wait() == [0, 0, 0, 0]
    for rank in range(4):
        assert "sums [0, 4, 106, 12, 16]" in ranks_of.out(rank)
        assert ("stopped at" in ranks_of.out(rank)) == (rank == 2)


def test_two_of_four_ranks_have_a_debugger_each_and_the_others_wait_for_both(
    ranks_of: Any,
) -> None:
    ranks_of.start(MEETS, 4)
    ranks_of.until_stopped(0)
    ranks_of.until_stopped(3)
    with ranks_of.attach(0) as zero, ranks_of.attach(3) as three:
        for client, value in ((zero, 100), (three, 300)):
            client.expect(PROMPT)
            client.type(f"mine = {value}\n")
            client.expect(PROMPT)
        zero.go_on()
        time.sleep(2.5)  # longer than ops may take: rank 3 is looked at still
        assert [process.poll() for process in ranks_of.processes] == [None] * 4
        three.type("p mine\n")
        three.expect("300")
        three.expect(PROMPT)
        three.go_on()
    assert ranks_of.wait() == [0, 0, 0, 0]
    assert all("sum 403.0" in ranks_of.out(rank) for rank in range(4))


def test_a_client_that_detaches_or_is_killed_leaves_four_ranks_as_they_were(ranks_of: Any) -> None:
    ranks_of.start(MEETS, 4)
    ranks_of.until_stopped(0)
    ranks_of.until_stopped(3)
    with ranks_of.at_prompt(0) as client:
        client.type("detach\n")
        client.expect("detached")
    with ranks_of.at_prompt(3) as client:
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    time.sleep(2.5)  # longer than ops may take: nobody is there, the clock is paused all the same
    assert [process.poll() for process in ranks_of.processes] == [None] * 4
    for rank in (0, 3):
        with ranks_of.at_prompt(rank) as client:
            client.go_on()
    assert ranks_of.wait() == [0, 0, 0, 0]
    assert all("sum 6.0" in ranks_of.out(rank) for rank in range(4))


def test_quitting_one_of_two_debuggers_is_one_error_on_all_four(ranks_of: Any) -> None:
    ranks_of.start(MEETS, 4)
    ranks_of.until_stopped(0)
    ranks_of.until_stopped(3)
    with ranks_of.at_prompt(0) as zero, ranks_of.at_prompt(3) as three:
        three.type("q\n")
        zero.type("c\n")
        assert ranks_of.wait() == [1, 1, 1, 1]
    for rank in range(4):
        assert "DebuggerQuit: rank 3 quit its debugger in breakpoint #1" in ranks_of.out(rank)


def test_a_rank_that_is_killed_at_its_prompt_ends_the_wait_of_the_others(ranks_of: Any) -> None:
    ranks_of.start(MEETS.replace("[0, 3]", "0"), 4)
    ranks_of.until_stopped(0)
    with ranks_of.at_prompt(0) as client:
        ranks_of.processes[0].send_signal(signal.SIGKILL)
        assert client.wait()[0] != 0
    assert ranks_of.wait() == [-signal.SIGKILL, 1, 1, 1]
    for rank in (1, 2, 3):
        assert "PeerLost: rank 0 died" in ranks_of.out(rank)
