"""A forward pass of a DDP model on one rank alone is named with what to do about it."""

from __future__ import annotations

import pytest

from distdbg.diagnose.verdict import diagnose
from distdbg.record.format import Status
from tests.support.session_builder import SessionBuilder
from tests.unit.diagnose.test_mismatch import error


@pytest.mark.parametrize("is_said", [True, False])
@pytest.mark.parametrize(("forwards", "is_alone"), [((1,), True), ((1, 2), False)])
def test_whoever_evaluates_alone_is_to_use_the_module(
    forwards: tuple[int, ...], is_alone: bool, is_said: bool
) -> None:
    build = SessionBuilder(4)
    build.session.comms.append("DDP broadcasts buffers")
    what = (
        "op #1 on group 'world' differs between ranks: barrier on ranks 0,2-3, broadcast on rank 1"
    )
    for rank in range(4):
        op = build.op(
            rank,
            "broadcast" if rank in forwards else "barrier",
            at_s=1,
            ended_s=1.1,
            status=Status.MISMATCH,
            error=error(what, ranks=forwards, seq=1, group="world", hint="a branch calls other ops")
            if is_said
            else "",
        )
        build.session.ranks[rank].ops.comm[op.at] = int(rank in forwards)
    root = diagnose(build.session).root
    assert root is not None
    text = "rank 1 alone ran a forward pass of the DDP model: use model.module there, or run it on all ranks"
    assert (root.advice == text) is is_alone
