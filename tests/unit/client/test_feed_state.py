"""A live feed by lists of events: what is shown, and what is asked."""

from __future__ import annotations

from typing import Any

import pytest

from distdbg.client.feed.asking import AgentQuestion, JobPoller
from distdbg.client.feed.feed_state import (
    FeedEvent,
    FeedState,
    JobEnded,
    Joined,
    NobodyAnswered,
    ReadEnd,
    RoundMade,
    step,
)
from distdbg.errors import DistNetworkError, UsageError
from distdbg.record.rank_state import RankState
from distdbg.view.feed import Topic
from distdbg.view.snapshot import FeedLink, RankRow, Snapshot

ROWS = {rank: RankRow(rank=rank, state=RankState.RUNNING) for rank in range(2)}
ENDED = {rank: RankRow(rank=rank, state=RankState.ENDED) for rank in range(2)}
JOINED = Joined("r", "n1")
ROUND = RoundMade(5.0, 100.0, {"ranks": ROWS, "lines": ("it hangs",)}, 2, "")


def after(*events: FeedEvent) -> tuple[FeedState, ReadEnd | None]:
    state, wanted = FeedState(snapshot=Snapshot(at=0.0, run="r")), None
    for event in events:
        state, wanted = step(state, event)
    return state, wanted


def test_a_job_is_live_when_all_its_ranks_were_read() -> None:
    half = RoundMade(4.0, 99.0, {"ranks": {0: ROWS[0]}}, 2, "")
    state, _ = after(JOINED, half)
    assert state.snapshot.link is FeedLink.JOINING
    assert state.snapshot.link_why == "1 of 2 ranks were read"
    state, _ = step(state, ROUND)
    assert (state.snapshot.link, state.snapshot.link_why) == (FeedLink.LIVE, "")
    assert step(state, ROUND)[0].snapshot is state.snapshot  # nothing new is no new snapshot


def test_who_does_not_answer_is_asked_less_often_until_it_does() -> None:
    silent = NobodyAnswered(6.0, "refused")
    state, wanted = after(JOINED, ROUND, *[silent] * 3)
    assert (state.snapshot.link, state.pause_s, wanted) == (FeedLink.LOST, 2.0, None)
    assert state.snapshot.link_why == "no agent answers: refused"
    assert after(*[silent] * 9)[0].pause_s == 4.0
    assert after(silent)[0].snapshot.link is FeedLink.JOINING
    state, _ = step(state, ROUND)
    assert (state.snapshot.link, state.pause_s) == (FeedLink.LIVE, 0.25)


@pytest.mark.parametrize(
    ("rows", "event", "is_over"),
    [
        (ROWS, NobodyAnswered(6.0, "gone", is_over=True), True),
        (ROWS, NobodyAnswered(6.0, "gone"), False),
        (ENDED, NobodyAnswered(6.0, "gone"), True),
        (ENDED, NobodyAnswered(6.0, "gone", is_over=False), False),
        (ENDED, NobodyAnswered(6.0, "ValueError", is_garbage=True), False),
        ({}, NobodyAnswered(6.0, "gone"), False),
    ],
)
def test_a_job_whose_agent_is_gone_has_ended_if_its_ranks_have(
    rows: Any, event: NobodyAnswered, is_over: bool
) -> None:
    _, wanted = after(JOINED, RoundMade(5.0, 100.0, {"ranks": rows}, 2, ""), event)
    assert (wanted == ReadEnd()) is is_over


def test_another_run_is_the_end_of_the_first() -> None:
    state, wanted = after(JOINED, ROUND, Joined("s", "n2"))
    assert wanted == ReadEnd("run r has ended; s answers there now")
    assert (state.run, state.host) == ("r", "n1")


def test_what_was_wrong_has_passed_where_all_ranks_have_ended_well() -> None:
    state, _ = after(JOINED, ROUND, JobEnded(7.0, "over", ENDED, None, has_folder=True))
    assert (state.snapshot.link, state.snapshot.lines) == (FeedLink.OVER, ())
    state, _ = after(JOINED, ROUND, JobEnded(7.0, "over", ENDED, None, has_folder=False))
    assert state.snapshot.lines == ("it hangs",)


# ------------------------------------------------------------------------------- what is asked

ABOUT = {
    "run": "r",
    "host": "n1",
    "attempt": 0,
    "control": None,
    "tree": {"hosts": [{"host": "n1"}, {"host": "n2"}], "is_root": True},
    "world": 2,
}
ANSWERS: dict[str, Any] = {
    "about": ABOUT,
    "ranks": {"ranks": []},
    "verdict": {"lines": ["it hangs"], "verdict": None, "version": "1"},
    "breakpoints": UsageError("there is no method breakpoints"),
    "groups": {"groups": []},
    "gpus": None,
}


def run_round(
    poller: JobPoller, answers: dict[str, Any], now_s: float, **shown: Any
) -> tuple[list[AgentQuestion], dict[str, Any]]:
    asked: list[AgentQuestion] = []
    asking = poller.round(Snapshot(at=0.0, **shown), frozenset({Topic.GROUPS}), now_s)
    try:
        question = next(asking)
        while True:
            asked.append(question)
            answer = answers[question.do]
            if isinstance(answer, Exception):
                question = asking.throw(answer)
            else:
                question = asking.send(answer)
    except StopIteration as done:
        return asked, done.value


def test_a_round_asks_what_is_due_and_the_same_answers_make_the_same_changes() -> None:
    made = []
    for _ in range(2):
        poller = JobPoller(lambda: 5.0)
        poller.begin_anew({"host": "n1"})
        asked, changes = run_round(poller, ANSWERS, 100.0)
        assert [(one.do, one.host) for one in asked] == [
            ("about", ""),
            ("ranks", ""),
            ("verdict", ""),
            ("breakpoints", ""),
            ("groups", ""),
            ("groups", "n2"),
            ("gpus", "n2"),
        ]
        made.append(changes)
        assert changes["lines"] == ("it hangs",)
        asked, changes = run_round(poller, ANSWERS, 100.6, **changes)
        # An agent that does not know breakpoints is not asked again.
        assert [one.do for one in asked] == ["ranks", "verdict", "groups", "groups"]
        assert asked[1].arguments == {"unless": "1"}
    assert made[0] == made[1]


def test_an_agent_that_is_gone_ends_the_round() -> None:
    poller = JobPoller(lambda: 5.0)
    answers = ANSWERS | {"breakpoints": DistNetworkError("connection reset")}
    with pytest.raises(DistNetworkError):
        run_round(poller, answers, 100.0)
