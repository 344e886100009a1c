"""The warden, asked from the process that started it."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.errors import UsageError
from distdbg.launch.ended import AskedToEnd, EndedChild, to_rank_end
from distdbg.launch.warden import Warden, WardenLost

PATIENCE_S = 120.0


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden.start() as warden:
        yield warden


def wait_ends(warden: Warden, count: int = 1) -> list[EndedChild]:
    ends: list[EndedChild] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(ends) < count:
        assert time.monotonic() < deadline, ends
        ends += warden.events(1.0)
    return ends


def run(warden: Warden, code: str, **options: object) -> EndedChild:
    warden.spawn("child", [sys.executable, "-c", code], os.environ, **options)  # type: ignore[arg-type]  # passed on
    [ended] = wait_ends(warden)
    assert ended.name == "child"
    return ended


def tell(warden: Warden, code: str, **options: object) -> object:
    """What a child prints as JSON."""
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        try:
            run(warden, f"import json, os, sys, signal\nprint(json.dumps({code}))",
                stdout_fd=writer, **options)  # fmt: skip
        finally:
            os.close(writer)
        return json.loads(output.read())


@pytest.mark.parametrize(
    ("code", "exit_code", "signum"),
    [
        ("pass", 0, None),
        ("raise SystemExit(3)", 3, None),
        ("import os; os.kill(os.getpid(), 9)", None, signal.SIGKILL),
        ("import ctypes; ctypes.string_at(0)", None, signal.SIGSEGV),
        ("import os; os.abort()", None, signal.SIGABRT),
    ],
)
def test_an_end_tells_code_or_signal_and_what_was_used(
    warden: Warden, code: str, exit_code: int | None, signum: int | None
) -> None:
    begun_ns = time.monotonic_ns()
    hold = "import resource; block = bytearray(64 << 20)\n"
    ended = run(warden, hold + "[0 for _ in range(1_000_000)]\n" + code)
    assert (ended.exit_code, ended.signal) == (exit_code, signum)
    # The kernel counts what the child shared with its parent before it became the program.
    own_nbytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    assert 64 << 20 < ended.max_rss_nbytes < max(200 << 20, own_nbytes + (16 << 20))
    assert 0.0 < ended.user_s + ended.system_s < PATIENCE_S
    assert begun_ns < ended.ended_ns <= time.monotonic_ns()


def test_an_end_becomes_a_line_of_the_run_folder() -> None:
    facts = {"name": "rank 2", "pid": 4711, "user_s": 1.0, "system_s": 0.5}
    ended = EndedChild(status=9, max_rss_nbytes=5 << 20, ended_ns=7, **facts)  # type: ignore[arg-type]  # as above
    end = to_rank_end(ended, rank=2, host="n01", wall_ns=8, was_oom=True)
    assert end.cause == "oom"
    assert end.how == "was killed for memory (SIGKILL by the kernel; it had used 5.0 MiB)"
    assert to_rank_end(ended, rank=2, host="n01", wall_ns=8).how == "was killed by SIGKILL"
    ended = EndedChild(status=0x8B, max_rss_nbytes=0, ended_ns=7, **facts)  # type: ignore[arg-type]  # as above
    end = to_rank_end(ended, rank=2, host="n01", wall_ns=8, asked=AskedToEnd(at_ns=6, by=15))
    assert end.how == "was killed by SIGSEGV (core dumped)"
    assert (end.was_asked, end.asked_ns, end.asked_by) == (True, 6, 15)
    ended = EndedChild(status=3 << 8, max_rss_nbytes=0, ended_ns=7, **facts)  # type: ignore[arg-type]  # as above
    end = to_rank_end(ended, rank=2, host="n01", wall_ns=8)
    assert (end.cause, end.exit_code, end.signal) == ("exited", 3, None)


def test_a_program_that_is_not_there_is_a_usage_error_with_the_systems_words(
    warden: Warden, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="cannot start rank 0: nothing-of-that-name: No such file"):
        # A PATH of its own: of folders that this user may not read, the system says something else.
        warden.spawn("rank 0", ["nothing-of-that-name"], os.environ | {"PATH": str(tmp_path)})
    script = tmp_path / "script"
    script.write_text("echo")
    with pytest.raises(UsageError, match=r"Permission denied(?s:.*)hint: chmod \+x"):
        warden.spawn("rank 0", [str(script)], os.environ)
    script.chmod(0o700)
    with pytest.raises(UsageError, match=r"Exec format error(?s:.*)first line such as"):
        warden.spawn("rank 0", [str(script)], os.environ)
    script.write_text("#!/nowhere/python\n")
    with pytest.raises(UsageError, match=r"No such file(?s:.*)interpreter in its first line"):
        warden.spawn("rank 0", [str(script)], os.environ)
    with pytest.raises(UsageError, match="cannot start rank 0 in /nowhere: No such file"):
        warden.spawn("rank 0", ["true"], os.environ, cwd="/nowhere")
    with pytest.raises(UsageError, match=r"cannot start rank 0 on the cpus \[1000\]: Invalid"):
        warden.spawn("rank 0", ["true"], os.environ, cpus={1000})
    with pytest.raises(UsageError, match="embedded null byte"):
        warden.spawn("rank 0", ["true", "a\0b"], os.environ)
    assert warden.events() == []


def test_two_children_of_one_name_are_refused_while_both_would_live(warden: Warden) -> None:
    warden.spawn("rank 0", ["sleep", "60"], os.environ)
    with pytest.raises(UsageError, match="one of that name is running"):
        warden.spawn("rank 0", ["sleep", "60"], os.environ)
    assert warden.signal("rank 0", signal.SIGKILL)
    wait_ends(warden)
    warden.spawn("rank 0", ["true"], os.environ)
    wait_ends(warden)


def test_a_child_has_a_session_default_signals_and_three_descriptors(warden: Warden) -> None:
    others = "[s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN]"
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        found = tell(
            warden,
            f"""[os.getsid(0) == os.getpid(), {others}, len(signal.pthread_sigmask(0, [])),
            signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            sorted(int(fd) for fd in os.listdir('/proc/self/fd'))]""",
        )
    finally:
        signal.signal(signal.SIGHUP, old)
    # Python itself ignores two; the fourth descriptor lists the folder.
    assert found == [True, [signal.SIGPIPE, signal.SIGXFSZ], 0, True, [0, 1, 2, 3]]


def test_a_child_gets_what_was_asked_for(warden: Warden, tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    code = "[os.getcwd(), sorted(os.sched_getaffinity(0)), sys.stdin.read()]"
    assert tell(warden, code, cwd=tmp_path, cpus={cpu}, stdin="null") == [str(tmp_path), [cpu], ""]
    assert tell(warden, "os.getcwd()") == os.getcwd()
    odd = os.fsdecode(b"\xff\xfe")
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        warden.spawn("child", ["sh", "-c", 'echo "$ODD $1"', "sh", odd],
                     {**os.environ, "ODD": odd}, stdout_fd=writer)  # fmt: skip
        os.close(writer)
        assert output.read() == b"\xff\xfe \xff\xfe\n"
    wait_ends(warden)


def test_a_child_reads_what_is_written_to_its_pipe(warden: Warden) -> None:
    reader, writer = os.pipe()
    warden.spawn("cat", ["cat"], os.environ, stdin="pipe", stdout_fd=writer)
    os.close(writer)
    with open(warden.take_stdin("cat"), "wb") as pipe:
        pipe.write(b"hello")
    with open(reader, "rb") as output:
        assert output.read() == b"hello"
    assert wait_ends(warden)[0].exit_code == 0


def test_a_signal_reaches_the_whole_group_unless_told_otherwise(warden: Warden) -> None:
    script = "trap 'exit 5' TERM; sh -c 'trap \"echo two; exit\" TERM; echo up; sleep 60 & wait' & wait; wait"
    for whole_group, output_wanted in ((True, b"up\ntwo\n"), (False, b"up\n")):
        reader, writer = os.pipe()
        warden.spawn("child", ["sh", "-c", script], os.environ, stdin="pipe", stdout_fd=writer)
        os.close(writer)
        with open(reader, "rb") as output:
            assert output.readline() == b"up\n"
            assert warden.signal("child", signal.SIGTERM, whole_group)
            [ended] = wait_ends(warden)
            assert ended.exit_code == 5
            assert not warden.signal("child", signal.SIGTERM)
            said = b"up\n" + (output.readline() if whole_group else b"")  # then it may be killed
            warden.sweep()
            assert said + output.read() == output_wanted


def test_a_sweep_spares_the_kept_and_their_children(warden: Warden) -> None:
    reader, writer = os.pipe()
    for name in ("agent", "rank 0"):
        script = f"(setsid sleep 300 &); setsid sleep 300 & echo {name}; sleep 300; :"
        warden.spawn(name, ["sh", "-c", script], os.environ, stdout_fd=writer)
    os.close(writer)
    with open(reader, "rb") as output:
        assert sorted([output.readline(), output.readline()]) == [b"agent\n", b"rank 0\n"]
        # The orphan of the agent is nobody's any more, so it goes as well.
        swept = warden.sweep(keep={"agent"})
        assert swept.left == ()
        assert len(swept.killed) >= 3
        assert [ended.name for ended in wait_ends(warden)] == ["rank 0"]
        assert warden.signal("agent", 0)
        assert warden.sweep(keep={"agent"}) == ((), ())
        warden.sweep()
        assert [ended.name for ended in wait_ends(warden)] == ["agent"]
        assert output.read() == b""  # nobody holds the other end


def test_a_process_that_starts_others_all_the_time_is_swept(warden: Warden) -> None:
    warden.spawn("busy", ["sh", "-c", "while :; do (setsid sleep 300 &) ; done"], os.environ)
    deadline = time.monotonic() + PATIENCE_S
    children = Path(f"/proc/{warden.pid}/task/{warden.pid}/children")
    while len(children.read_text().split()) < 8:  # the orphans, and the shell
        assert time.monotonic() < deadline, "it starts nothing"
        time.sleep(0.01)  # nothing announces an orphan
    swept = warden.sweep()
    assert swept.left == ()
    assert len(swept.killed) > 3


def test_ends_wait_in_the_warden_while_the_launcher_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def narrow_pair() -> tuple[socket.socket, socket.socket]:
        pair = make_pair()
        for end in pair:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the least that there is
        return pair

    make_pair = socket.socketpair
    reader, writer = narrow_pair()
    with reader, writer:
        writer.setblocking(False)
        fitting = 0
        with suppress(BlockingIOError):
            while writer.send(b"an end"):
                fitting += 1
    count = 2 * fitting + 8
    assert count < 64
    monkeypatch.setattr("distdbg.launch.warden.socket.socketpair", narrow_pair)
    with Warden.start() as warden:
        for number in range(count):
            warden.spawn(f"rank {number}", ["true"], os.environ, stdin="null")
        assert warden.sweep().left == ()
        found = {ended.name for ended in wait_ends(warden, count)}
    assert found == {f"rank {n}" for n in range(count)}


def test_a_selector_sees_an_end(warden: Warden) -> None:
    warden.spawn("rank 0", ["true"], os.environ)
    assert select.select([warden], [], [], PATIENCE_S)[0]
    assert [ended.name for ended in warden.events()] == ["rank 0"]
    assert not select.select([warden], [], [], 0)[0]


def test_a_warden_that_does_not_answer_is_replaced_by_its_launcher(
    warden: Warden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distdbg.launch.warden._ANSWER_S", 0.2)
    pid = warden.spawn("rank 0", ["sh", "-c", "(setsid sleep 300 &); sleep 300"], os.environ)
    os.kill(warden.pid, signal.SIGSTOP)
    with pytest.raises(WardenLost, match="did not answer for"):
        warden.sweep(timeout_s=0.1)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(WardenLost):
        warden.events()


def test_a_lost_warden_is_said_to_have_been_killed_and_by_what(warden: Warden) -> None:
    pid = warden.spawn("rank 0", ["sleep", "300"], os.environ)
    os.kill(warden.pid, signal.SIGKILL)
    with pytest.raises(
        WardenLost, match=rf"\(pid {warden.pid}\) was killed by SIGKILL\n  the ranks"
    ):
        wait_ends(warden)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(WardenLost):
        warden.spawn("rank 0", ["true"], os.environ)


def test_an_environment_of_any_size_arrives(warden: Warden) -> None:
    big = {f"BIG{number}": str(number) * 100_000 for number in range(8)}
    code = "[len(os.environ[f'BIG{n}']) for n in range(8)]"
    reader, writer = os.pipe()
    with open(reader, "rb") as output:
        argv = [sys.executable, "-c", f"import json, os\nprint(json.dumps({code}))"]
        warden.spawn("child", argv, {**os.environ, **big}, stdout_fd=writer)
        os.close(writer)
        found = json.loads(output.read())
    assert found == [100_000] * 8
    wait_ends(warden)


def test_closing_ends_all_children_and_says_so_to_who_still_asks() -> None:
    warden = Warden.start()
    pid = warden.spawn("rank 0", ["sleep", "300"], os.environ)
    warden.spawn("rank 1", ["cat"], os.environ, stdin="pipe")
    warden.close()
    warden.close()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(UsageError, match="was closed"):
        warden.events()


def test_a_child_keeps_the_limits_of_its_launcher(warden: Warden) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert tell(warden, "__import__('resource').getrlimit(7)[0]") == soft
