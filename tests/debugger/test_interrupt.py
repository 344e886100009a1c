"""Clients at ranks that run, of jobs that are debuggable."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from distdbg.record.reader import read_record

PROMPT = r"\(Pdb\) "

RUNS = """
    import sys, threading, time
    import numpy as np
    import distdbg as dist

    def work():
        count = 0
        is_over = False
        print("runs", flush=True)
        while not is_over:
            count += 1
            {body}
        return count

    dist.init_process_group()
    print("worked", work() > 0, sys.gettrace(), flush=True)
    dist.destroy_process_group()
    print("threads", [one.name for one in threading.enumerate() if one.name.startswith("distdbg")])
"""


def start(ranks: Any, body: str, world_size: int = 1, **environ: str) -> None:
    ranks.start(RUNS.replace("{body}", body), world_size, DISTDBG_DEBUGGABLE="1", **environ)
    ranks.until_printed("runs")


@pytest.mark.slow
def test_attaching_stops_a_rank_in_python_and_leaving_lets_it_run(ranks_of: Any) -> None:
    start(ranks_of, "pass")
    with ranks_of.at_prompt() as client:
        client.type("p count > 0\n")
        client.expect("True")
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed="p count > 0\n")
    assert "True" in done.stdout
    assert "detached" in done.stderr
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed="is_over = True\nc\n")
    assert done.returncode == 0
    assert ranks_of.wait() == [0]
    assert "worked True None" in ranks_of.out()
    assert "threads []" in ranks_of.out()
    assert not ranks_of.socket().exists()


@pytest.mark.slow
def test_a_rank_is_stopped_in_a_sleep_and_in_a_wait_for_another(ranks_of: Any) -> None:
    start(ranks_of, "time.sleep(600) if dist.get_rank() == 1 else dist.barrier()", 2)
    for rank, line in ((1, "time.sleep"), (0, "dist.barrier")):
        done = ranks_of.call("attach", "--rank", str(rank), str(ranks_of.run), typed="w\np count\n")
        assert line in done.stdout
        assert "\n1\n" in done.stdout
        assert ranks_of.processes[rank].poll() is None


@pytest.mark.slow
def test_ctrl_c_stops_a_rank_again_that_was_told_to_go_on(ranks_of: Any) -> None:
    start(ranks_of, "time.sleep(0.01)")
    with ranks_of.at_prompt() as client:
        client.type("c\n")
        client.expect("Ctrl-C stops it, twice leaves")
        client.interrupt()
        client.expect("stopped at .*: interrupted")
        client.expect(PROMPT)
        client.type("is_over = True\n")
        client.expect(PROMPT)
        client.type("c\n")
        client.expect("rank 0 has left its groups")
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_quitting_a_rank_that_was_stopped_by_attaching_does_not_end_it(ranks_of: Any) -> None:
    start(ranks_of, "time.sleep(0.01)")
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed="n\nq\n")
    assert done.returncode == 0
    typed = "is_over = True\nc\n"
    assert ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed=typed).returncode == 0
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_a_program_with_a_handler_of_its_own_keeps_it_and_stops_at_an_op(ranks_of: Any) -> None:
    start(
        ranks_of,
        "time.sleep(0.01); dist.barrier()",
        DISTDBG_TEST_HANDLER="1",
    )
    ranks_of.end()
    ranks_of.processes.clear()
    program = RUNS.replace("{body}", "time.sleep(0.01); dist.barrier()").replace(
        "    dist.init",
        "    import signal; signal.signal(signal.SIGRTMIN + 8, lambda *_: None)\n    dist.init",
        1,
    )
    ranks_of.start(program, DISTDBG_DEBUGGABLE="1")
    ranks_of.until_printed("runs")
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed="is_over = True\nc\n")
    assert "the program has a handler of its own for signal" in done.stdout
    assert "dist.barrier()" in done.stdout
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_values_are_asked_for_on_all_ranks_while_they_run(ranks_of: Any) -> None:
    start(ranks_of, "x = np.full(4, 2.0); time.sleep(0.01)", 2)
    ranks_of.until_printed("runs", 1)
    done = ranks_of.call("exec", str(ranks_of.run), "--all", "x")
    swapped = ranks_of.call("exec", "--all", "x", str(ranks_of.run))
    assert (swapped.stdout, swapped.returncode) == (done.stdout, done.returncode)
    rows = [line.split() for line in done.stdout.splitlines()[2:]]
    assert rows == [["0-1", "float64[4]", "[2,", "2,", "2,", "2]", "numpy.ndarray"]]
    done = ranks_of.call(
        "exec", "--rank", "0-1", "--json", str(ranks_of.run), "1 / dist.get_rank()"
    )
    assert done.returncode == 1
    first, second = json.loads(done.stdout)["ranks"]
    assert first == {"rank": 0, "error": "ZeroDivisionError: division by zero"}
    assert second == {"rank": 1, "value": "1.0", "type": "float"}


THREADS = """
    import sys, time
    import distdbg as dist
    from distdbg.debugger.session import stop_here

    def work():
        me = dist.get_rank()
        if me != 1:
            print(stop_here(f"of {me}"), flush=True)
        dist.barrier()
        return me

    print(dist.run_threads(work, 3))
    print(sys.gettrace(), flush=True)
"""


def test_ranks_that_are_threads_of_a_process_are_debugged_side_by_side(ranks_of: Any) -> None:
    ranks_of.start(THREADS)
    ranks_of.until_printed("--rank 0")
    ranks_of.until_printed("--rank 2")
    with ranks_of.attach(2) as second, ranks_of.attach(0) as first:
        for client, rank in ((first, 0), (second, 2)):
            client.expect(PROMPT)
            client.type("me\n")
            client.expect(rf"\n{rank}\n")
            client.type("print('this is', dist.get_rank())\n")
            client.expect(f"\nthis is {rank}")
        first.type("n\n")
        first.expect("-> dist.barrier")
        first.type("s\n")
        second.go_on()
        first.expect("-> return me")
        first.type("c\n")
        first.expect("goes on|has left")
    assert ranks_of.wait() == [0]
    assert "[0, 1, 2]\nNone" in ranks_of.out()
    assert not list(ranks_of.run.glob("*.sock"))


def test_a_rank_that_is_a_thread_stops_at_its_next_op(ranks_of: Any) -> None:
    program = THREADS.replace(
        "if me != 1:",
        "while True:\n            time.sleep(0.01)\n            dist.barrier()\n        if False:",
    )
    ranks_of.start(program, DISTDBG_DEBUGGABLE="1")
    from tests.debugger.conftest import poll_for

    poll_for(ranks_of.socket(2).exists, lambda: ranks_of.out())
    done = ranks_of.call("attach", "--rank", "1", str(ranks_of.run), typed="me\n")
    assert "dist.barrier()" in done.stdout
    assert "\n1\n" in done.stdout
    os.kill(ranks_of.processes[0].pid, 0)


WAITS_AT_ITS_PROMPT = """
    import distdbg as dist
    from distdbg.debugger.session import stop_here

    dist.init_process_group()
    try:
        stop_here("a breakpoint")
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    dist.destroy_process_group()
"""


def test_sigint_ends_the_wait_at_a_prompt_of_another_terminal(ranks_of: Any) -> None:
    ranks_of.start(WAITS_AT_ITS_PROMPT)
    ranks_of.until_stopped()
    ranks_of.processes[0].send_signal(signal.SIGINT)
    assert ranks_of.wait() == [0]
    assert "interrupted" in ranks_of.out()


def test_sigint_lets_go_of_a_rank_that_is_held_at_its_error(ranks_of: Any) -> None:
    program = """
        import distdbg as dist
        dist.init_process_group()
        raise ValueError("no data")
    """
    ranks_of.start(program, DISTDBG_DEBUG_ON_ERROR="1")
    ranks_of.until_stopped()
    stop = read_record(ranks_of.run / "rank00000.ddr").events[-1]
    assert stop.site is not None
    assert (stop.site.function, stop.site.line) == ("<module>", 4)  # which runs no more
    ranks_of.processes[0].send_signal(signal.SIGINT)
    assert ranks_of.wait() == [1]
    assert "ValueError: no data" in ranks_of.out()
    assert "excepthook" not in ranks_of.out()
