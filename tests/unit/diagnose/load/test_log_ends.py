"""How jobs and their ranks ended, by the messages of launchers, kernels and queues, and by tracebacks."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import FindingKind
from tests.unit.diagnose.load.read_logs import GLOO, ReadLog, only

TORCHRUN = """\
W1120 23:54:44.793000 26870 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010] Sending process 26878 closing signal SIGTERM
E1120 23:54:45.100000 26870 site-packages/torch/distributed/elastic/multiprocessing/api.py:984] failed (exitcode: {code}) local_rank: 1 (pid: 26879) of binary: /usr/bin/python
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_23:54:45
  host      : n01
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 26878)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 26878
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_23:54:44
  host      : n01
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 26879)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================"""  # noqa: E501


def test_torchrun_tells_who_failed_and_whom_it_ended(read: ReadLog) -> None:
    session = read(TORCHRUN.format(code=1))
    found = session.said[0]
    assert (found.kind, found.ranks) == (FindingKind.DEAD_RANK, (1,))
    assert "exited with code 1" in found.what
    assert all(0 not in f.ranks for f in session.said)


def test_a_kill_for_memory_is_put_to_its_rank_by_the_process(read: ReadLog) -> None:
    oom = "[12345.678901] Out of memory: Killed process 26879 (python) total-vm:10kB, anon-rss:9kB"
    found = read(f"{oom}\n{TORCHRUN.format(code=-9)}").said[0]
    assert (found.kind, found.ranks) == (FindingKind.DEAD_RANK, (1,))
    assert "killed for memory" in found.what


@pytest.mark.parametrize(
    "text",
    [
        "Nov 20 23:54:44 n04 kernel: Memory cgroup out of memory: Killed process 812 (python) total-vm:1kB",
        "[Fri Nov 20 23:54:44 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,"
        "task_memcg=/job,task=python,pid=812,uid=0",
        "2026-11-20T23:54:44+0000 n04 kernel: Out of memory: Killed process 812 (python)",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",  # noqa: E501
    ],
)
def test_a_kill_for_memory_is_known_in_the_words_of_kernels(read: ReadLog, text: str) -> None:
    found = only(read(text))
    assert found.kind is FindingKind.DEAD_RANK
    assert "killed for memory" in found.what


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("srun: error: n04: task 3: Killed", "Killed"),
        ("srun: error: n04: task 3: Exited with exit code 7", "exit code 7"),
        ("[rank3]: Fatal Python error: Segmentation fault", "Segmentation fault"),
        ("[rank 3] Fatal Python error: Segmentation fault", "Segmentation fault"),
        (
            "[rank3]: terminate called after throwing an instance of 'std::bad_alloc'",
            "std::bad_alloc",
        ),
    ],
)
def test_a_death_is_known_in_other_words(read: ReadLog, text: str, word: str) -> None:
    found = only(read(text))
    assert (found.kind, found.ranks) == (FindingKind.DEAD_RANK, (3,))
    assert word in found.what


def test_an_xid_of_a_gpu_is_a_cause(read: ReadLog) -> None:
    found = only(
        read(
            "Nov 20 23:54:44 n04 kernel: NVRM: Xid (PCI:0000:65:00): 79, pid=812, GPU has fallen off the bus"
        )
    )
    assert "fallen off the bus" in found.what
    assert found.what.startswith("n04: ")


def test_a_job_that_its_queue_ended_was_stopped(read: ReadLog) -> None:
    found = only(
        read(
            "slurmstepd: error: *** STEP 12.0 ON n01 CANCELLED AT 2026-11-20T23:54:44 DUE TO TIME LIMIT ***"
        )
    )
    assert found.kind is FindingKind.STOPPED
    assert "TIME LIMIT" in found.what


TRACEBACK = """\
[rank{0}]: Traceback (most recent call last):
[rank{0}]:   File "/job/train.py", line 12, in step
[rank{0}]:     loss = model(x)
[rank{0}]:   File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1, in forward
[rank{0}]:     return f(x)
[rank{0}]: {1}"""


def test_a_traceback_is_told_with_the_line_of_the_job(read: ReadLog) -> None:
    found = only(read(TRACEBACK.format(3, "ValueError: no data")))
    assert (found.kind, found.ranks) == (FindingKind.DEAD_RANK, (3,))
    assert found.what == "rank 3 raised ValueError: no data at train.py:12 (step)"
    assert found.evidence[0].site == "train.py:12 (step)"


def test_an_error_of_one_rank_comes_before_the_closed_connections_of_others(read: ReadLog) -> None:
    closed = f"RuntimeError: [{GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:15261"
    session = read(
        "\n".join(
            (
                TRACEBACK.format(0, closed),
                TRACEBACK.format(2, closed),
                TRACEBACK.format(3, "KeyError: 'x'"),
            )
        )
    )
    (found,) = session.said
    assert found.ranks == (3,)
    assert [f.victims for f in found.follows] == [(0, 2)]


def test_the_launchers_root_cause_is_not_believed_against_an_earlier_cause(read: ReadLog) -> None:
    # torchrun saw rank 1 end first, of a connection that the kill of rank 0 had closed.
    closed = f"RuntimeError: [{GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:15261"
    oom = "Nov 20 23:54:43 n01 kernel: Out of memory: Killed process 26878 (python) total-vm:1kB"
    session = read(
        "\n".join((TRACEBACK.format(1, closed), oom, TORCHRUN.format(code=1).replace("-15", "-9")))
    )
    assert session.said[0].ranks == (0,)
    assert "for memory" in session.said[0].what
    assert all(f.ranks != (1,) for f in session.said)


def test_of_two_errors_the_first_in_time_comes_first(read: ReadLog) -> None:
    session = read(
        "2026-11-20 23:54:45,000 [rank1]: Traceback (most recent call last):\n"
        "2026-11-20 23:54:45,000 [rank1]: ValueError: late\n"
        "2026-11-20 23:54:44,000 [rank2]: Traceback (most recent call last):\n"
        "2026-11-20 23:54:44,000 [rank2]: ValueError: early"
    )
    assert [f.ranks for f in session.said] == [(2,), (1,)]


def test_an_error_that_came_of_another_is_not_told_twice(read: ReadLog) -> None:
    session = read(
        TRACEBACK.format(1, "KeyError: 'x'")
        + "\n[rank1]: \n[rank1]: During handling of the above exception, another exception occurred:\n"
        + "[rank1]: \n"
        + TRACEBACK.format(1, "RuntimeError: broken")
    )
    assert only(session).what.startswith("rank 1 raised KeyError: 'x'")


def test_all_ranks_that_raise_the_same_are_one_finding(read: ReadLog) -> None:
    found = only(read("\n".join(TRACEBACK.format(r, "ValueError: no data") for r in range(3))))
    assert found.ranks == (0, 1, 2)
    assert found.what.startswith("ranks 0-2 raised ValueError")


def test_an_interrupt_is_no_fault(read: ReadLog) -> None:
    found = only(read(TRACEBACK.format(0, "KeyboardInterrupt")))
    assert found.kind is FindingKind.STOPPED


def test_a_log_without_anything_says_nothing(read: ReadLog) -> None:
    session = read("epoch 1 loss 0.5\nrank 3 is fine: 12\n[default3]:hello\n")
    assert session.said == []
    assert session.lines == []


def test_the_lines_behind_findings_are_kept_with_their_places(read: ReadLog) -> None:
    session = read("hello\n[default1]:[rank5]: RuntimeError: Connection closed by peer [::1]:1")
    (line,) = session.lines
    assert line.source == "job.log:2"
    assert line.rank == 5


@pytest.mark.parametrize("folded", ["[ranks 0-1,3] ", "[ranks 0-1,3]"])
def test_a_traceback_that_the_launcher_has_folded_is_of_all_its_ranks(
    read: ReadLog, folded: str
) -> None:
    text = TRACEBACK.format(1, "ValueError: no data").replace("[rank1]: ", folded)
    found = only(read(text))
    assert found.what == "ranks 0-1,3 raised ValueError: no data at train.py:12 (step)"


@pytest.mark.parametrize("ranks", ["0-999999999999", "3-0", "0--1", "0-1048575", "0-1,,2-"])
def test_ranks_that_are_none_or_too_many_are_no_load(read: ReadLog, ranks: str) -> None:
    session = read("\n".join(f"[ranks {ranks}] ValueError: line {n}" for n in range(64)))
    assert len(session.lines) <= 64 * 64
