"""What an error of the native side becomes for who called the op."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from distdbg.errors import JobAborted, MismatchError, RankLeft, UsageError
from distdbg.native import NativeError
from distdbg.ops.call import Kind
from distdbg.runtime.backends.failures import to_public


class _Fault(Exception):
    """As `NativeError`, with what it has of an abort."""

    fault = "aborted"
    seq = 0
    peer = -1


def test_an_abort_whose_words_did_not_come_to_this_host_says_where_they_are() -> None:
    call: Any = SimpleNamespace(kind=Kind.BARRIER, name="barrier")
    group: Any = SimpleNamespace(seq=3)
    error: Any = _Fault("")
    found = to_public(
        error, call, group=group, name="world", rank=0, global_ranks=[0], waited_s=1.0
    )
    assert isinstance(found, JobAborted)
    assert "the reason did not reach this host: read the errors of the other ranks" in found.what


class _Left(Exception):
    """As `NativeError`, of a rank that returned while this one waited for it."""

    fault = "peer_lost"
    seq = 2
    peer = 0
    detail = ""


def test_a_rank_that_found_a_difference_and_left_is_told_by_the_difference() -> None:
    call: Any = SimpleNamespace(kind=Kind.ALL_REDUCE, name="all_reduce")
    error: Any = _Left("left (returned)")
    facts = [(0, 1, 1, True), (0, 2, 2, False)]
    differs = "all_reduce on group 'world' differs between ranks: on a GPU on rank 0, on the host on rank 1"
    for cause, kind in (((0, 0, 0, 2, differs), MismatchError), (None, RankLeft)):
        group: Any = SimpleNamespace(seq=2, cause=lambda cause=cause: cause, facts=lambda: facts)
        found = to_public(
            error, call, group=group, name="world", rank=1, global_ranks=[0, 1], waited_s=1.0
        )
        assert type(found) is kind
        assert (found.what == differs) == (cause is not None)


class _Closed(NativeError):
    fault = "usage"


def test_a_group_that_another_thread_closes_meanwhile_is_told_as_closed() -> None:
    def cause() -> None:
        raise _Closed("this rank has left the group")

    call: Any = SimpleNamespace(kind=Kind.ALL_REDUCE, name="all_reduce")
    error: Any = _Left("left (returned)")
    group: Any = SimpleNamespace(seq=2, cause=cause)
    found = to_public(
        error, call, group=group, name="world", rank=1, global_ranks=[0, 1], waited_s=1.0
    )
    assert type(found) is UsageError
    assert found.what == "all_reduce on group 'world': this rank has left the group"
