"""The launchers' agreement, without store, threads and clock."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdbg.errors import RendezvousError
from distdbg.launch.rendezvous import state as agreement
from distdbg.launch.rendezvous.keeper import SilentHosts
from distdbg.launch.rendezvous.round import Closing
from distdbg.launch.rendezvous.state import RendezvousState
from tests.unit.launch.simulated_launchers import LAST_CALL_S, Job, Launcher, bury, member, settle


def forming(*names: str, **facts: object) -> RendezvousState:
    state = RendezvousState(**{"min_nodes": 2, "max_nodes": 3, **facts})  # type: ignore[arg-type]
    for name in names:
        state = agreement.come(state, member(name), -1)
    return state


def running(*names: str, **facts: object) -> RendezvousState:
    return agreement.complete(forming(*names, **facts))


def names(state: RendezvousState) -> list[str]:
    return [node.name for node in state.nodes]


def waiting(state: RendezvousState) -> list[str]:
    return [node.name for node in state.waiting]


# ------------------------------------------------------------------------------------ one round


def test_launchers_are_numbered_as_they_come() -> None:
    assert names(running("b", "a", "c")) == ["b", "a", "c"]


def test_launchers_with_places_are_numbered_by_them() -> None:
    state = RendezvousState(min_nodes=3, max_nodes=3)
    for name, place in (("b", 2), ("a", 0), ("c", 1)):
        state = agreement.come(state, member(name, place), -1)
    assert names(agreement.complete(state)) == ["a", "c", "b"]
    assert agreement.taken_by(state, member("d", 1)) == member("c", 1)
    assert agreement.taken_by(state, member("c", 1)) is None


def test_a_place_is_free_again_when_its_launcher_is_gone() -> None:
    state = agreement.come(RendezvousState(min_nodes=1, max_nodes=1), member("a", 0), -1)
    state = agreement.go(agreement.complete(state), ["a"])
    assert agreement.taken_by(state, member("b", 0)) is None


def test_coming_twice_changes_nothing() -> None:
    state = forming("a")
    assert agreement.come(state, member("a"), -1) is state


@pytest.mark.parametrize(
    ("came", "enough_for_s", "is_ready"),
    [
        ("a", 1000.0, False),
        ("ab", 0.0, False),
        ("ab", 29.9, False),
        ("ab", 30.0, True),
        ("abc", 0.0, True),
    ],
)
def test_a_round_is_ready_when_full_or_after_the_last_call(
    came: str, enough_for_s: float, is_ready: bool
) -> None:
    assert agreement.is_ready(forming(*came), enough_for_s, LAST_CALL_S) is is_ready


def test_one_too_many_waits() -> None:
    state = forming("a", "b", "c", "d")
    assert (names(state), waiting(state)) == (["a", "b", "c"], ["d"])
    assert waiting(agreement.come(state, member("d"), -1)) == ["d"]


def test_who_waits_takes_the_place_of_one_that_goes() -> None:
    state = agreement.go(forming("a", "b", "c", "d", "e"), ["b"])
    assert (names(state), waiting(state)) == (["a", "c", "d"], ["e"])


# ------------------------------------------------------------------------------ the round after


def test_the_first_that_comes_back_begins_the_next_round() -> None:
    state = agreement.come(running("a", "b"), member("b"), 0)
    assert (state.number, state.is_complete) == (1, False)
    assert (state.joined, state.missing) == (("b",), ("a",))


def test_a_restart_keeps_the_order_and_needs_no_last_call() -> None:
    state = agreement.come(running("a", "b"), member("b"), 0)
    assert not agreement.is_ready(state, 1000.0, LAST_CALL_S)  # a is alive: not without it
    state = agreement.come(state, member("a"), 0)
    assert agreement.is_ready(state, 0.0, LAST_CALL_S)
    assert names(agreement.complete(state)) == ["a", "b"]


def test_numbers_close_up_behind_one_that_is_gone() -> None:
    state = agreement.go(running("a", "b", "c"), ["a"])
    assert agreement.lost_nodes(state, 0) == ("a",)
    for name in ("c", "b"):
        state = agreement.come(state, member(name), 0)
    assert agreement.lost_nodes(state, 0) == ("a",)  # while the next one forms, too
    assert agreement.is_ready(state, 0.0, LAST_CALL_S)
    state = agreement.complete(state)
    assert names(state) == ["b", "c"]
    assert agreement.lost_nodes(state, 1) == ()


def test_too_few_that_are_left_wait_for_others_and_a_last_call() -> None:
    state = agreement.go(running("a", "b"), ["a"])
    state = agreement.come(state, member("b"), 0)
    assert not agreement.is_ready(state, 1000.0, LAST_CALL_S)
    state = agreement.come(state, member("new"), -1)
    assert not agreement.is_ready(state, 0.0, LAST_CALL_S)
    assert agreement.is_ready(state, LAST_CALL_S, LAST_CALL_S)
    assert names(agreement.complete(state)) == ["b", "new"]


def test_a_late_one_waits_until_the_others_begin_the_next_round() -> None:
    state = agreement.come(running("a", "b"), member("late"), -1)
    assert agreement.waiting_count(state, 0) == 1
    state = agreement.come(state, member("b"), 0)
    assert names(state) == ["b", "late"]
    state = agreement.come(state, member("a"), 0)
    assert names(agreement.complete(state)) == ["a", "b", "late"]


def test_a_late_one_without_room_is_not_counted_until_one_is_gone() -> None:
    state = agreement.come(running("a", "b", "c"), member("late"), -1)
    assert agreement.waiting_count(state, 0) == 0
    assert agreement.waiting_count(agreement.go(state, ["c"]), 0) == 1


def test_newcomers_do_not_take_the_places_of_those_that_come_back() -> None:
    state = agreement.come(running("a", "b"), member("a"), 0)
    for name in ("x", "y"):
        state = agreement.come(state, member(name), -1)
    assert (names(state), waiting(state)) == (["a", "x"], ["y"])
    assert "b" in names(agreement.come(state, member("b"), 0))


def test_one_taken_for_dead_is_a_newcomer_when_it_comes_back() -> None:
    state = agreement.go(running("a", "b", "c"), ["a"])
    state = agreement.come(state, member("a"), 0)
    assert (waiting(state), agreement.waiting_count(state, 0)) == (["a"], 1)
    for name in ("b", "c"):
        state = agreement.come(state, member(name), 0)
    assert names(agreement.complete(state)) == ["b", "c", "a"]


def test_a_round_whose_launchers_are_all_gone_gives_way() -> None:
    state = agreement.go(running("a", "b"), ["a", "b"])
    state = agreement.come(state, member("new"), -1)
    assert (state.number, names(state)) == (1, ["new"])


def test_who_has_the_next_round_to_join_counts_as_waited_for() -> None:
    state = agreement.come(running("a", "b"), member("b"), 0)
    assert agreement.waiting_count(state, 0) == 1
    assert agreement.waiting_count(state, 1) == 0


# -------------------------------------------------------------------------------------- closing


def test_the_first_reason_for_closing_stays() -> None:
    first = Closing(reason="rank 1 failed", is_well=False)
    state = agreement.close(running("a", "b"), first)
    assert agreement.close(state, Closing(reason="x", is_well=True)).closing == first


def test_nobody_joins_a_closed_job() -> None:
    state = agreement.close(forming("a", "b"), Closing(reason="x", is_well=False))
    assert agreement.come(state, member("c"), -1) is state
    assert not agreement.is_ready(state, 1000.0, LAST_CALL_S)


# ----------------------------------------------------------------------------------------- text


def test_the_text_in_the_store_is_the_whole_agreement() -> None:
    state = agreement.come(running("a", "b"), member("ü", 3), -1)
    state = agreement.close(
        agreement.go(state, ["a"]), Closing(reason="x", is_well=False, exit_code=7)
    )
    assert RendezvousState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    "text", ["", "no", "[]", "{}", '{"version": 1}', '{"version": 1, "nodes": 3}', "[" * 99999]
)
def test_what_is_no_agreement_is_said_to_be_none(text: str) -> None:
    with pytest.raises(RendezvousError, match="cannot be read"):
        RendezvousState.from_json(text)


def test_another_version_asks_for_the_same_everywhere() -> None:
    text = json.dumps({**json.loads(forming("a").to_json()), "version": 9})
    with pytest.raises(RendezvousError, match="version 9, this distdbg knows 1"):
        RendezvousState.from_json(text)


# ---------------------------------------------------------------------------------- keep-alive


def test_all_of_a_small_job_listen_to_each_other() -> None:
    state = running("a", "b", "c")
    assert agreement.watched_by(state, "b") == ("c", "a")
    assert agreement.watched_by(state, "waits elsewhere") == ("a", "b", "c")


def test_in_a_large_job_everybody_is_listened_to_by_some() -> None:
    some = [f"n{number}" for number in range(100)]
    state = running(*some, max_nodes=100)
    watched = [agreement.watched_by(state, name) for name in some]
    assert {len(heard) for heard in watched} == {16}
    assert all(sum(name in heard for heard in watched) == 16 for name in some)


def test_only_silence_longer_than_the_limit_is_death() -> None:
    silence = SilentHosts(limit_s=3.0, longest_look_s=1.0)
    assert silence.look(0.0, {"a": 1, "b": 1}) == ()
    assert silence.look(1.0, {"a": 2, "b": 1}) == ()
    assert silence.look(2.0, {"a": 2, "b": 1}) == ()
    assert silence.look(3.0, {"a": 3, "b": 1}) == ("b",)
    assert silence.look(4.0, {"a": 3, "b": 2}) == ()


def test_a_launcher_that_was_stopped_itself_does_not_take_the_others_for_dead() -> None:
    silence = SilentHosts(limit_s=3.0, longest_look_s=1.0)
    silence.look(0.0, {"a": 1})
    assert silence.look(500.0, {"a": 1}) == ()
    assert silence.look(501.0, {"a": 2}) == ()


# --------------------------------------------------------------------------------- many at once


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_whoever_comes_goes_and_dies_in_any_order_all_agree_on_every_round(
    data: st.DataObject,
) -> None:
    low = data.draw(st.integers(1, 3), "min")
    job = Job(min_nodes=low, max_nodes=data.draw(st.integers(low, 4), "max"))
    launchers = [Launcher(job, f"n{number}") for number in range(data.draw(st.integers(1, 6)))]
    one_of = st.sampled_from(launchers)
    for event in data.draw(st.lists(st.sampled_from("sssssssskt"), max_size=120)):
        match event:
            case "s":
                data.draw(one_of).step()
            case "k":
                data.draw(one_of).is_dead = True
                bury(job, launchers)
            case "t":
                job.now_s += LAST_CALL_S / 2
    settle(job, launchers)
    for order in job.completed.values():
        assert low <= len(order) <= job.max_nodes
        assert len(set(order)) == len(order)
    alive = {one.name for one in launchers if not one.is_dead}
    for before, after in pairwise(job.completed.values()):
        kept = [name for name in before if name in after]
        assert [name for name in after if name in kept] == kept  # nobody overtakes
    if len(alive) >= low:
        assert job.state.is_complete
        assert set(job.state.joined) <= alive
        assert len(job.state.joined) == min(len(alive), job.max_nodes)
    else:
        assert not job.state.is_complete or len(job.state.joined) < low
