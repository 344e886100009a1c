"""A client at a rank that stands at a breakpoint: what it sees, and what is left when it goes."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

PROMPT = r"\(Pdb\) "

STOPS = """
    import sys
    import threading, time
    import numpy as np
    import distdbg as dist
    from distdbg.debugger.session import stop_here

    def step(scale):
        x = np.full(2, float(dist.get_rank() + 1))
        said = stop_here("a breakpoint") if dist.get_rank() == 0 else None
        x *= scale
        dist.all_reduce(x)
        return said, x.tolist()

    dist.init_process_group()
    print("result", *step(1), flush=True)
    def left():
        return sorted(one.name for one in threading.enumerate() if one.name.startswith("distdbg"))
    until = time.monotonic() + 0
    while left() and time.monotonic() < until:
        time.sleep(0.01)  # a thread that has nothing more to do ends by itself
    print("left", sys.gettrace(), left(), flush=True)
    dist.destroy_process_group()
"""


def test_a_rank_is_looked_at_changed_and_stepped_over_an_op(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS, 2)
    with ranks_of.attach() as client:
        where = client.expect(PROMPT)
        assert "rank 0 stopped at program.py:10 (step): a breakpoint" in where
        assert 'said = stop_here("a breakpoint")' in where
        client.type("w\n")
        stack = client.expect(PROMPT)
        assert "<module>" in stack
        assert "distdbg/" not in stack.replace(str(ranks_of.folder), "")
        client.type("scale = 10\n")
        client.expect(PROMPT)
        client.type("n\n")
        client.expect(r"-> x \*= scale")
        client.type("n\n")
        client.expect(r"-> dist.all_reduce\(x\)")
        client.type("n\n")
        client.expect(r"-> return said, x.tolist\(\)")
        client.type("p x\n")
        client.expect(r"array\(\[12., 12.\]\)")
        client.type("c\n")
        client.expect("rank 0 goes on")
        assert client.wait()[0] == 0
    assert ranks_of.wait() == [0, 0]
    assert "result continued [12.0, 12.0]" in ranks_of.out()
    assert not ranks_of.socket().exists()


def test_nothing_is_left_in_a_rank_that_went_on(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    assert ranks_of.call("attach", str(ranks_of.run), typed="n\nc\n").returncode == 0
    assert ranks_of.wait() == [0]
    assert "left None" in ranks_of.out()
    assert sorted(path.suffix for path in ranks_of.run.iterdir()) == ["", ".ddr"]


@pytest.mark.slow
def test_quitting_is_told_to_whoever_stopped_the_rank(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed="q\n")
    assert done.returncode == 0
    assert "rank 0 has left its debugger" in done.stderr
    assert ranks_of.wait() == [0]
    assert "result quit" in ranks_of.out()


@pytest.mark.slow
def test_the_tab_key_completes_from_the_ranks_frame(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        client.type("p sca\t\n")
        assert "p scale" in client.expect(PROMPT)
        client.type("p x.toli\t\n")
        assert "p x.tolist" in client.expect(PROMPT)
        client.go_on()


def test_statements_go_over_lines(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    script = "total = 0\nfor i in range(4):\n    total += i\n\nprint('total', total)\nc\n"
    done = ranks_of.call("attach", str(ranks_of.run), typed=script)
    assert "total 6\n" in done.stdout


@pytest.mark.slow
def test_a_rank_stays_at_its_breakpoint_when_the_client_detaches_or_is_killed(
    ranks_of: Any,
) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        client.type("scale = 5\n")
        client.expect(PROMPT)
        client.type("detach\n")
        client.expect("detached")
        assert client.wait()[0] == 0
    with ranks_of.at_prompt() as client:
        client.process.send_signal(signal.SIGKILL)
        client.process.wait()
    assert ranks_of.processes[0].poll() is None
    done = ranks_of.call("attach", str(ranks_of.run), typed="p scale\nc\n")
    assert "5\n" in done.stdout
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_the_end_of_the_input_at_a_terminal_lets_the_rank_go_on(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        client.type("\x04")
        client.expect("goes on")
        assert client.wait()[0] == 0
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_a_second_client_is_told_who_is_there(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run))
        assert done.returncode == 2
        assert f"rank 0 is attached already, by {os.environ.get('USER', '')}" in done.stderr
        assert f"process {client.process.pid}" in done.stderr
        assert "5" in ranks_of.call("exec", "--rank", "0", str(ranks_of.run), "scale + 4").stdout


@pytest.mark.slow
def test_the_end_of_a_rank_is_told_to_its_client(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        ranks_of.processes[0].send_signal(signal.SIGKILL)
        code, text = client.wait()
    assert code == 5
    assert "rank 0 is gone" in text


@pytest.mark.slow
def test_a_socket_that_a_killed_rank_has_left_is_replaced(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    killed = ranks_of.processes.pop()
    killed.kill()
    killed.wait()
    ranks_of.start_and_stop(STOPS)
    assert ranks_of.call("attach", str(ranks_of.run), typed="c\n").returncode == 0
    assert ranks_of.wait() == [0]


def test_ctrl_c_breaks_off_a_statement_and_the_rank_lives(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        client.type("import time; print('begun'); time.sleep(600)\n")
        client.expect(r"\nbegun")
        client.interrupt()
        assert "KeyboardInterrupt" in client.expect(PROMPT)
        client.go_on()
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_ctrl_c_ends_a_sleep_that_the_first_signal_does_not_reach(ranks_of: Any) -> None:
    """As where it comes after Python has looked for signals, and before the system call."""
    ranks_of.start_and_stop(STOPS)
    with ranks_of.at_prompt() as client:
        client.type(
            "import signal, time; mine = {signal.SIGRTMIN + 8}; mask = signal.pthread_sigmask\n"
        )
        client.expect(PROMPT)
        # The sleep is what is interrupted; sigwait takes the first signal.
        client.type(
            "mask(0, mine); print('begun'); signal.sigwait(mine); mask(1, mine); time.sleep(600)\n"
        )
        client.expect(r"\nbegun")
        client.interrupt()
        assert "KeyboardInterrupt" in client.expect(PROMPT)
        client.go_on()
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_the_clock_of_the_job_stands_at_the_prompt_alone(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS, 2, DISTDBG_TIMEOUT_S="3")
    with ranks_of.at_prompt() as client:
        client.type("import time; time.sleep(4)\n")  # longer than the other rank's op may take
        client.expect(PROMPT)
        client.go_on()
    assert ranks_of.wait() == [0, 0]


@pytest.mark.slow
def test_a_running_rank_of_a_job_that_is_not_debuggable_is_left_alone(ranks_of: Any) -> None:
    ranks_of.start(
        """
        import time
        import distdbg as dist
        dist.init_process_group()
        print("runs", flush=True)
        time.sleep(60)
        """
    )
    ranks_of.until_printed("runs")
    for words in (["attach"], ["exec", "--timeout", "2"]):
        done = ranks_of.call(
            *words, "--rank", "0", str(ranks_of.run), *(["1"] * (len(words) - 1))[:1]
        )
        assert done.returncode != 0
        assert "the job was not started with --debuggable" in done.stderr + done.stdout
    done = ranks_of.call("attach", "--rank", "7", str(ranks_of.run))
    assert "no rank 7" in done.stderr


def test_a_rank_stopped_by_a_signal_does_not_run(ranks_of: Any) -> None:
    ranks_of.start(
        """
        import signal
        import distdbg as dist
        dist.init_process_group()
        print("runs", flush=True)
        signal.pause()
        """
    )
    ranks_of.until_printed("runs")
    pid = ranks_of.processes[0].pid
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    for words in (["attach"], ["exec", "--timeout", "2"]):
        done = ranks_of.call(
            *words, "--rank", "0", str(ranks_of.run), *(["1"] * (len(words) - 1))[:1]
        )
        assert done.returncode != 0
        said = " ".join((done.stderr + done.stdout).split())
        assert "is stopped (SIGSTOP" in said
        assert f"kill -CONT {pid}" in said
        assert "--debuggable" not in said


def test_nobody_came_in_time(ranks_of: Any) -> None:
    program = STOPS.replace('"a breakpoint"', '"a breakpoint", limit_s=0.2')
    # No client keeps the threads here, which end by themselves.
    ranks_of.start(program.replace("time.monotonic() + 0", "time.monotonic() + 30"))
    assert ranks_of.wait() == [0]
    assert "result expired" in ranks_of.out()
    assert "left None []" in ranks_of.out()


def test_a_rank_to_which_nobody_can_come_says_why_and_goes_on(ranks_of: Any) -> None:
    from distdbg.control import sockets

    ranks_of.run.mkdir()
    with sockets.listen(ranks_of.socket()):
        ranks_of.start(STOPS)
        assert ranks_of.wait() == [0]
    assert "no debugger can attach" in ranks_of.out()
    assert "is served by another process" in ranks_of.out()
    assert "result unreachable" in ranks_of.out()


@pytest.mark.slow
def test_what_says_no_line_of_the_protocol_is_dropped(ranks_of: Any) -> None:
    from distdbg.control import sockets

    ranks_of.start_and_stop(STOPS)
    for rubbish in (b"GET / HTTP/1.0\n", b"[1]\n", b'{"bytes": 7}\n', b"x" * (3 << 20)):
        sock = sockets.connect(ranks_of.socket(), 5.0)
        with sock, sock.makefile("rb") as lines:
            assert b'"distdbg":"debugger"' in lines.readline()
            try:
                sock.sendall(rubbish)
                assert b"this is not the protocol" in lines.read()
            except (BrokenPipeError, ConnectionResetError):
                pass  # dropped while it still spoke
    assert ranks_of.call("attach", str(ranks_of.run), typed="c\n").returncode == 0
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_an_expression_without_an_end_is_broken_off_and_the_prompt_lives(ranks_of: Any) -> None:
    ranks_of.start_and_stop(STOPS)
    endless = "sum(0 for _ in iter(int, 1))"
    for _ in range(2):
        done = ranks_of.call("exec", "--rank", "0", "--timeout", "0.5", str(ranks_of.run), endless)
        assert "no answer within 0.50 s" in done.stdout
    threads = "sorted(one.name for one in threading.enumerate())"
    typed = f"print({threads}.count('distdbg eval'), 'in work')\nc\n"
    done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run), typed=typed)
    assert "0 in work" in done.stdout
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_a_completion_without_an_end_is_broken_off(ranks_of: Any) -> None:
    ranks_of.start(
        STOPS.replace(
            "    def step",
            """    class Endless:
        @property
        def more(self):
            while True:
                pass

    endless = Endless()

    def step""",
            1,
        )
    )
    ranks_of.until_stopped()
    for is_killed in (False, True):
        with ranks_of.at_prompt() as client:
            client.type("p endless.more.\t")
            if is_killed:
                client.expect("endless.more.")
                client.process.kill()
                client.wait()
                continue
            client.type("\x15p scale + 41\n")
            client.expect("42")
            client.type("detach\n")
            client.expect("detached")
    assert ranks_of.call("attach", str(ranks_of.run), typed="c\n").returncode == 0
    assert ranks_of.wait() == [0]


@pytest.mark.slow
def test_at_the_error_of_an_op_the_line_that_called_it_is_looked_into(ranks_of: Any) -> None:
    ranks_of.start(
        """
        import numpy as np
        import distdbg as dist

        def step(n):
            size = 2 + n * dist.get_rank()
            dist.all_reduce(np.zeros(size))

        dist.init_process_group()
        step(0)
        try:
            step(1)
        except dist.DistError as error:
            print("raised", type(error).__name__, flush=True)
        """,
        2,
        DISTDBG_BREAK="rank=1,on=mismatch",
    )
    ranks_of.until_stopped(1)
    assert "stopped at program.py:7 (step)" in ranks_of.out(1)
    done = ranks_of.call("exec", "--rank", "1", str(ranks_of.run), "size")
    assert "3" in done.stdout.split("value")[1]
    with ranks_of.attach(1) as client:
        shown = client.expect(PROMPT)
        assert "differs between ranks: float64[2] on rank 0, float64[3] on rank 1" in shown
        client.type("w\n")
        assert "distdbg/" not in client.expect(PROMPT).replace(str(ranks_of.folder), "")
        client.type("p size + 40\n")
        client.expect("43")
        client.expect(PROMPT)
        client.type("n\n")  # it comes to the line now
        client.expect(PROMPT)
        client.go_on()
    assert ranks_of.wait() == [0, 0]
    assert all("raised MismatchError" in ranks_of.out(rank) for rank in range(2))


@pytest.mark.slow
def test_ranks_that_wait_at_a_breakpoint_of_others_can_be_asked_and_attached_to(
    ranks_of: Any,
) -> None:
    ranks_of.start(
        """
        import distdbg as dist

        def step(scale):
            dist.breakpoint(rank=0, timeout_s=600)
            return scale

        dist.init_process_group()
        print("result", step(dist.get_rank() + 1), flush=True)
        dist.destroy_process_group()
        """,
        2,
    )
    ranks_of.until_stopped()
    done = ranks_of.call("exec", "--all", str(ranks_of.run), "scale * 10")
    assert [line.split()[:2] for line in done.stdout.splitlines()[2:]] == [["0", "10"], ["1", "20"]]
    with ranks_of.at_prompt(1) as client:
        client.type("scale = 7\n")
        client.expect(PROMPT)
        client.go_on()
    assert ranks_of.call("attach", str(ranks_of.run), typed="c\n").returncode == 0
    assert ranks_of.wait() == [0, 0]
    assert "result 7" in ranks_of.out(1)
