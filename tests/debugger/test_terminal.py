"""Debuggers that need a terminal, and ranks that have one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.terminals import on_terminal

PROMPT = r"\(Pdb\) "

#: Refuses to work without a terminal, as full-screen debuggers do; tells what it sees.
OWN_DEBUGGER = """
    import os
    import signal
    import sys

    def set_trace():
        frame = sys._getframe(1)
        assert all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"now %d %d" % os.get_terminal_size()))
        print("own debugger at", frame.f_code.co_name, "of", frame.f_locals["me"], flush=True)
        print("size", *os.get_terminal_size(), flush=True)
        while (line := input("own> ")) != "go":
            print(eval(line, frame.f_globals, frame.f_locals), flush=True)
"""

PROGRAM = """
    import os
    import sys
    import distdbg as dist
    from distdbg.debugger.session import stop_here

    def work():
        me = "a local name"
        print("said", stop_here("a breakpoint"), flush=True)
        me = "another"
        return me

    dist.init_process_group()
    streams = [sys.stdin, sys.stdout, sys.stderr], [os.fstat(n).st_ino for n in range(3)]
    work()
    assert streams == ([sys.stdin, sys.stdout, sys.stderr], [os.fstat(n).st_ino for n in range(3)])
    print("tracer", sys.gettrace(), flush=True)
    dist.destroy_process_group()
"""


def write(ranks: Any, name: str, text: str) -> None:
    import textwrap

    (ranks.folder / name).write_text(textwrap.dedent(text))


def test_a_debugger_of_the_users_has_a_terminal_that_the_client_sees(ranks_of: Any) -> None:
    write(ranks_of, "own_debugger.py", OWN_DEBUGGER)
    ranks_of.start(PROGRAM, DISTDBG_DEBUGGER="own_debugger")
    ranks_of.until_stopped()
    with ranks_of.attach() as client:
        client.expect("own debugger at work of a local name")
        client.expect("size 100 24")
        client.expect("own> ")
        client.type("me.upper()\n")
        client.expect("A LOCAL NAME")
        client.resize(50, 90)
        client.expect("now 90 50")
        client.type("\x1d")  # Ctrl-]
        client.expect("detached")
        assert client.wait()[0] == 0
    assert ranks_of.processes[0].poll() is None


def test_a_client_that_comes_later_sees_what_was_shown(ranks_of: Any) -> None:
    write(ranks_of, "own_debugger.py", OWN_DEBUGGER)
    ranks_of.start(PROGRAM, PYTHONBREAKPOINT="own_debugger.set_trace")
    ranks_of.until_stopped()
    with ranks_of.attach() as client:
        client.expect("own> ")
        client.process.kill()
        client.process.wait()
    with ranks_of.attach() as client:
        client.expect("own debugger at work")
        client.expect("own> ")
        client.type("me\n")
        client.expect("\na local name")
        client.type("go\n")
        client.expect("rank 0 goes on")
    assert ranks_of.wait() == [0]
    assert "said continued\ntracer None" in ranks_of.out()
    assert "own>" not in ranks_of.out()


def test_a_debugger_of_the_family_of_bdb_stops_at_once_at_the_users_line(ranks_of: Any) -> None:
    write(
        ranks_of,
        "pdb_again.py",
        """
        import pdb
        import sys
        def begin():
            pdb.Pdb(nosigint=True).set_trace(sys._getframe(1))
        """,
    )
    ranks_of.start(PROGRAM, DISTDBG_DEBUGGER="pdb_again.begin")
    ranks_of.until_stopped()
    with ranks_of.attach() as client:
        client.expect(r'-> print\("said"')
        client.expect(PROMPT)
        client.type("me = 'changed at once'\n")
        client.expect(PROMPT)
        client.type("n\n")
        client.expect('-> me = "another"')
        client.type("p me\n")
        client.expect("\n'changed at once'")
        client.type("n\n")
        client.expect("-> return me")
        client.type("c\n")
        client.expect("rank 0 goes on")
    assert ranks_of.wait() == [0]
    assert "said continued\ntracer None" in ranks_of.out()


@pytest.mark.slow
def test_a_debugger_that_is_not_there_is_said_and_pdb_takes_its_place(ranks_of: Any) -> None:
    ranks_of.start(PROGRAM, DISTDBG_DEBUGGER="no_such_debugger")
    ranks_of.until_stopped()
    done = ranks_of.call("attach", str(ranks_of.run), typed="me\nc\n")
    missing = "the debugger 'no_such_debugger' cannot be loaded: No module named 'no_such_debugger'"
    assert f"*** {missing}; this is pdb" in done.stdout
    assert "'a local name'" in done.stdout
    assert missing in ranks_of.out()
    assert ranks_of.wait() == [0]


def test_nobody_came_to_a_terminal_in_time(ranks_of: Any) -> None:
    write(ranks_of, "own_debugger.py", OWN_DEBUGGER)
    program = PROGRAM.replace('"a breakpoint"', '"a breakpoint", limit_s=0.2')
    ranks_of.start(program, DISTDBG_DEBUGGER="own_debugger")
    assert ranks_of.wait() == [0]
    assert "said expired\ntracer None" in ranks_of.out()


@pytest.mark.slow
def test_nobody_stayed_when_a_debugger_failed(ranks_of: Any) -> None:
    write(ranks_of, "own_debugger.py", "def set_trace():\n    raise OSError('no terminal')\n")
    program = PROGRAM.replace('"a breakpoint"', '"a breakpoint", limit_s=15.0')
    ranks_of.start(program, DISTDBG_DEBUGGER="own_debugger")
    ranks_of.until_stopped()
    assert ranks_of.call("attach", str(ranks_of.run)).returncode == 0
    assert ranks_of.wait() == [0]
    assert "no terminal; pdb is used" in ranks_of.out()
    assert "said expired\ntracer None" in ranks_of.out()


def test_breakpoints_that_are_switched_off_stop_nobody(ranks_of: Any) -> None:
    ranks_of.start(PROGRAM, PYTHONBREAKPOINT="0")
    assert ranks_of.wait() == [0]
    assert "said continued" in ranks_of.out()


def test_a_rank_with_a_terminal_of_its_own_is_debugged_there(ranks_of: Any) -> None:
    write(ranks_of, "program.py", PROGRAM)
    with on_terminal([str(ranks_of.folder / "program.py")], ranks_of.environ()) as rank:
        rank.expect(PROMPT)
        rank.type("p m\t\n")
        rank.expect("'a local name'")
        done = ranks_of.call("attach", "--rank", "0", str(ranks_of.run))
        assert "no rank 0" in done.stderr or "cannot be" in done.stderr or done.returncode == 2
        rank.type("n\n")
        rank.expect('-> me = "another"')
        # The terminal shows what is typed before the rank has read it, and Ctrl-C drops what is unread.
        rank.type("print('be' + 'gun') or __import__('time').sleep(600)\n")
        rank.expect("begun")
        rank.interrupt()
        rank.expect("KeyboardInterrupt")
        rank.expect(PROMPT)
        rank.type("c\n")
        rank.expect("tracer None")
        assert rank.wait()[0] == 0


def test_threads_take_turns_at_the_terminal_of_their_process(ranks_of: Any) -> None:
    write(
        ranks_of,
        "program.py",
        """
        import distdbg as dist
        from distdbg.debugger.session import stop_here

        def work():
            stop_here("a breakpoint")
            dist.barrier()
            return dist.get_rank()

        print("all", dist.run_threads(work, 2))
        """,
    )
    with on_terminal([str(ranks_of.folder / "program.py")], ranks_of.environ()) as rank:
        seen = set()
        for _ in range(2):
            rank.expect(PROMPT)
            rank.type("print('this is', dist.get_rank())\n")
            seen.add(rank.expect(r"\nthis is \d")[-1])
            rank.expect(PROMPT)
            rank.type("c\n")
        rank.expect(r"all \[0, 1\]")
        assert rank.wait()[0] == 0
    assert seen == {"0", "1"}


def test_an_exception_is_looked_at_where_it_was_raised(ranks_of: Any) -> None:
    ranks_of.start(
        """
        import distdbg as dist
        from distdbg.debugger.session import stop_here

        def inner(value):
            tensor = [value]
            dist.all_reduce(tensor)

        dist.init_process_group()
        try:
            inner(7)
        except Exception as error:
            print("said", stop_here("an exception", error=error), flush=True)
        dist.destroy_process_group()
        """
    )
    ranks_of.until_stopped()
    assert "program.py:7 (inner)" in ranks_of.out()
    done = ranks_of.call("attach", str(ranks_of.run), typed="p value\nw\nup\nc\n")
    assert "-> dist.all_reduce(tensor)" in done.stdout
    assert "\n7\n" in done.stdout
    assert "-> inner(7)" in done.stdout
    assert "distdbg/" not in done.stdout.replace(str(ranks_of.folder), "")
    assert ranks_of.wait() == [0]
