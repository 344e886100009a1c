"""Which hosts are asked for their numbers, by lists of events."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest

from distdbg.agent.metering.asked_hosts import (
    AskedHosts,
    HostSilent,
    HostsSeen,
    SumsWanted,
    TotalsReceived,
    step,
)

BOTH = HostsSeen(100.0, {"b": False, "c": False}, 2)


def after(*events: Any) -> AskedHosts:
    return reduce(step, events, AskedHosts())


def test_all_are_asked_at_once_and_whoever_told_is_asked_later() -> None:
    assert after(BOTH).next_asked == ("b", 100.0)
    assert after(BOTH, TotalsReceived(100.0, 100.1, "b")).next_asked == ("c", 100.0)
    reported = after(BOTH, TotalsReceived(100.0, 100.1, "b"), TotalsReceived(100.1, 100.2, "c"))
    assert reported.next_asked == ("b", 101.0)
    late = step(step(reported, TotalsReceived(150.0, 150.1, "b")), TotalsReceived(1e4, 1e4, "c"))
    assert late.hosts["b"].due_s == 155.0  # a tenth of the job
    assert late.hosts["c"].due_s == 1e4 + 10.0


def test_who_is_silent_is_left_alone_longer_each_time_until_it_tells() -> None:
    state, rests = after(BOTH), []
    for _ in range(6):
        state = step(state, HostSilent(100.0, "b"))
        rests.append(state.hosts["b"].due_s - 100.0)
    assert rests == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    state = step(state, TotalsReceived(200.0, 200.0, "b"))
    assert step(state, HostSilent(300.0, "b")).hosts["b"].due_s == 302.0


def test_the_lost_and_the_unmet_are_missing_and_nobody_is_asked_for_them() -> None:
    state = after(HostsSeen(100.0, {"b": True, "c": False}, 3))
    assert state.missing(100.0) == 3
    state = step(state, TotalsReceived(100.0, 100.0, "c"))
    assert (state.missing(134.0), state.missing(135.0)) == (2, 3)
    assert state.next_asked == ("c", 101.0)
    assert after(HostsSeen(100.0, {"b": True}, 1)).next_asked is None


def test_where_a_host_serves_is_known_while_it_is_there() -> None:
    state = after(
        BOTH, TotalsReceived(100.0, 100.0, "b", "b:9400"), TotalsReceived(100.0, 100.0, "c")
    )
    state = step(state, TotalsReceived(101.0, 101.0, "b"))
    assert state.addresses == {"b": "b:9400"}
    assert step(state, HostsSeen(102.0, {"c": False}, 2)).addresses == {}


@pytest.mark.parametrize(
    ("events", "is_whole"),
    [
        ((SumsWanted(100.0),), True),  # it is the only host
        ((BOTH, SumsWanted(100.0)), False),
        ((BOTH, TotalsReceived(100.0, 100.0, "b"), SumsWanted(101.0)), False),
        (
            (BOTH, TotalsReceived(1.0, 1.0, "b"), TotalsReceived(1.0, 1.0, "c"), SumsWanted(101.0)),
            True,
        ),
        ((HostsSeen(1.0, {"b": True}, 1), SumsWanted(101.0)), True),
        ((HostsSeen(1.0, {"b": True}, 2), SumsWanted(101.0)), False),
        ((BOTH, SumsWanted(100.0), SumsWanted(111.9)), False),
        ((BOTH, SumsWanted(100.0), SumsWanted(112.0)), True),
        ((SumsWanted(1.0), BOTH, SumsWanted(2.0)), True),  # it stays so
    ],
)
def test_sums_are_whole_when_all_have_told_or_had_time_to(
    events: tuple[Any, ...], is_whole: bool
) -> None:
    assert after(*events).is_whole is is_whole
