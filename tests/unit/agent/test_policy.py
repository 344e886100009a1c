from __future__ import annotations

from typing import Any

import pytest

from distdbg.agent.policy import GRACE_NS, Waiting, find_verdict, read_abort_on
from distdbg.control.words import AbortWords
from distdbg.errors import ConfigError
from distdbg.record.ends import RankEnd

ALL = frozenset(("dead", "mismatch", "deadlock"))
DIED = RankEnd(
    rank=2, pid=7, host="n14", ended_ns=1_000, wall_ns=0, cause="signal", signal=9, by="agent"
)
WAITS = Waiting(0, 500, "all_reduce #3 on group 'pair'", "train.py:88 (step)")


def verdict(
    end: RankEnd = DIED,
    waiting: Waiting = WAITS,
    findings: list[dict[str, Any]] | None = None,
    left: frozenset[int] = frozenset(),
    abort_on: frozenset[str] = ALL,
    now_ns: int = 1_000 + GRACE_NS,
) -> AbortWords | None:
    return find_verdict([end], [waiting], findings or [], left, abort_on, now_ns)


def changed(**facts: Any) -> RankEnd:
    values = {name: getattr(DIED, name) for name in DIED.__dataclass_fields__}
    return RankEnd(**(values | facts))


def test_a_dead_rank_ends_the_job_for_those_who_would_wait_for_ever() -> None:
    words = verdict()
    assert words is not None
    assert words.what == "rank 2 was killed by SIGKILL while rank 0 waited"
    assert (words.type, list(words.ranks), words.by) == ("dead rank", [2], "the agent")
    assert words.details == ["rank 0 waits in all_reduce #3 on group 'pair' at train.py:88 (step)"]


def test_ranks_get_a_moment_to_raise_by_themselves() -> None:
    assert verdict(now_ns=999 + GRACE_NS) is None


def test_nobody_is_told_who_began_to_wait_after_the_death() -> None:
    assert verdict(waiting=Waiting(0, 2_000, "all_reduce #4", "")) is None


@pytest.mark.parametrize(
    "end",
    [
        changed(cause="exited", signal=None, exit_code=0),
        changed(was_asked=True),
    ],
)
def test_a_rank_that_ended_well_or_was_asked_to_is_no_reason(end: RankEnd) -> None:
    assert verdict(end) is None


def test_a_rank_that_had_left_its_groups_is_no_reason() -> None:
    assert verdict(left=frozenset((2,))) is None


def test_what_may_abort_is_a_setting() -> None:
    assert verdict(abort_on=frozenset(("mismatch",))) is None
    assert verdict(abort_on=frozenset()) is None


def test_a_mismatch_is_said_rather_than_the_death_that_it_caused() -> None:
    finding = {
        "type": "MismatchError",
        "what": "all_reduce #3 differs",
        "ranks": [2],
        "details": ["rank 2 called it at train.py:9"],
        "hint": "pad it",
    }
    words = verdict(findings=[{"type": ""}, finding])
    assert words is not None
    assert (words.what, words.type, words.hint) == ("all_reduce #3 differs", "mismatch", "pad it")
    assert words.details[0] == "rank 2 called it at train.py:9"


def test_the_setting_is_read_and_checked() -> None:
    assert read_abort_on("dead, Mismatch,deadlock") == ALL
    assert read_abort_on("none") == frozenset()
    with pytest.raises(ConfigError, match="unknown kind 'slow'"):
        read_abort_on("dead,slow")
