import bdb

import pytest

from distdbg.debugger.on_error import is_own
from distdbg.errors import (
    CollectiveError,
    DebuggerQuit,
    JobAborted,
    MismatchError,
    OpTimeout,
    PeerLost,
    RankLeft,
)


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [ValueError("no data"), OpTimeout("waited"), MismatchError("differs"), MemoryError()],
    ids=repr,
)
def test_what_the_program_raises_is_its_own(error: BaseException) -> None:
    assert is_own(error)


@pytest.mark.parametrize(
    "error",
    [
        JobAborted("the job was aborted"),
        PeerLost("rank 2 died"),
        RankLeft("rank 2 left"),
        CollectiveError("all_reduce cannot run: rank 2 broke the group"),
        DebuggerQuit("rank 0 quit its debugger"),
        bdb.BdbQuit(),
        raised_from(RuntimeError("step failed"), PeerLost("rank 2 died")),
    ],
    ids=repr,
)
def test_what_others_have_caused_is_not(error: BaseException) -> None:
    assert not is_own(error)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_an_end_that_was_asked_for_is_no_failure(error: BaseException) -> None:
    assert not is_own(error)
