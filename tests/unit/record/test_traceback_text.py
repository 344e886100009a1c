"""What is shown of an exception that nobody catches."""

from __future__ import annotations

import pytest

from distdbg.errors import (
    CollectiveError,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
    RendezvousError,
    UsageError,
)
from distdbg.record.traceback_text import as_block, format_trimmed, is_consequence, one_line

OURS = "/lib/distdbg/"


def raised(source: str, filename: str, inner: str = "", inner_name: str = "") -> BaseException:
    """An exception through code of two files."""
    scope: dict[str, object] = {}
    if inner:
        exec(compile(inner, inner_name, "exec"), scope)
    try:
        exec(compile(source, filename, "exec"), scope)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


IN_OURS = "def op():\n    raise ValueError('no data')\n"


def test_frames_of_the_package_are_hidden() -> None:
    error = raised("\nop()\n", "/home/me/train.py", IN_OURS, f"{OURS}runtime/groups/group.py")
    text = format_trimmed(error, package=OURS)
    assert "group.py" not in text
    assert 'File "/home/me/train.py", line 2' in text
    assert text.endswith("ValueError: no data\n")
    assert "group.py" in format_trimmed(error, is_full=True, package=OURS)


def test_a_traceback_of_the_package_alone_is_shown() -> None:
    with pytest.raises(ValueError, match="no data") as caught:
        exec(compile(IN_OURS + "op()\n", f"{OURS}group.py", "exec"), {})
    assert caught.value.__traceback__ is not None
    own = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert "in op" in format_trimmed(own, package=OURS)


def test_frames_are_hidden_in_what_it_comes_from_as_well() -> None:
    source = "try:\n    op()\nexcept ValueError as error:\n    raise KeyError('x') from error\n"
    text = format_trimmed(raised(source, "a.py", IN_OURS, f"{OURS}group.py"), package=OURS)
    assert "group.py" not in text
    assert "direct cause" in text
    assert text.count("Traceback (most recent") == 2


def test_a_block_has_the_rank_in_each_line() -> None:
    assert as_block("a\n\n  b\n", "[rank 2] ") == "[rank 2] a\n[rank 2]\n[rank 2]   b\n"


def test_an_error_about_several_ranks_keeps_its_first_line_where_a_report_follows() -> None:
    error = MismatchError("op #1 differs", ranks=[1], details=["rank 1 called x"], hint="look")
    assert "rank 1 called x" in format_trimmed(error)
    text = format_trimmed(error, has_report=True)
    assert text.endswith("MismatchError: op #1 differs\n")
    assert "rank 1 called x" not in text


def from_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def in_context(error: Exception, context: Exception) -> Exception:
    error.__context__ = context
    return error


LOST = PeerLost("rank 2 died", peer=2, how="died (signal 9, SIGKILL)")


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (LOST, True),
        (JobAborted("aborted", verdict="deadlock", ranks=[0, 1], by="the agent"), True),
        (OpTimeout("late", missing=[2], ranks=[0]), True),
        (OpTimeout("late", missing=[0]), False),
        (RendezvousError("late", missing=[2]), True),
        (RendezvousError("no store"), False),
        (MismatchError("differs", ranks=[1]), True),
        (MismatchError("differs", ranks=[0, 1]), False),
        (CollectiveError("broken"), False),
        (UsageError("wrong"), False),
        (ValueError("no data"), False),
        (from_cause(RuntimeError("step failed"), LOST), True),
        (in_context(NameError("log"), LOST), False),  # a mistake of the handler
    ],
)
def test_who_only_suffers(error: Exception, is_one: bool) -> None:
    assert is_consequence(error, 0) is is_one


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (LOST, "PeerLost: rank 2 died (signal 9, SIGKILL)"),
        (RankLeft("x", peer=1, how="left"), "RankLeft: rank 1 left"),
        (RendezvousError("x", missing=[2]), "RendezvousError: rank 2 did not join"),
        (RendezvousError("x", missing=[1, 2]), "RendezvousError: ranks 1-2 did not join"),
        (
            CollectiveError(
                "barrier #2 on group 'world' cannot run: rank 0 was interrupted in op #2"
            ),
            "CollectiveError: rank 0 was interrupted in op #2",
        ),
        (OpTimeout("x", missing=[2, 3], waited_s=8.02), "OpTimeout: waited 8.0 s for ranks 2-3"),
        (MismatchError("x", ranks=[1]), "MismatchError: rank 1 differs"),
        (
            JobAborted("x", verdict="deadlock", by="the agent"),
            "JobAborted: deadlock, found by the agent",
        ),
        (RuntimeError("step\nfailed"), "RuntimeError: step"),
    ],
)
def test_one_line_says_why(error: Exception, line: str) -> None:
    assert one_line(error) == line


def test_the_one_line_has_the_users_line() -> None:
    error = raised("\n\nop()\n", "/home/me/train.py", IN_OURS, f"{OURS}group.py")
    assert one_line(error, OURS) == ("ValueError at train.py:3: no data")


def test_ctrl_c_shows_the_users_line_and_not_what_we_waited_in() -> None:
    wait = "import threading\ndef op():\n    threading.Event().wait(object())\n"
    source = "try:\n    op()\nexcept TypeError as e:\n    raise Exception from e\n"
    error = raised(source, "/home/me/train.py", wait, f"{OURS}spawn.py").__cause__
    assert error is not None
    stopped = KeyboardInterrupt().with_traceback(error.__traceback__)
    text = format_trimmed(stopped, package=OURS)
    assert 'File "/home/me/train.py", line 2' in text
    assert "threading.py" not in text
    assert "threading.py" in format_trimmed(stopped, is_full=True, package=OURS)
