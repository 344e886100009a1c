"""Turns at the launchers' agreement: whoever has one takes in those behind it."""

from __future__ import annotations

import threading
import time

import pytest

from distdbg.launch.rendezvous import board
from distdbg.launch.rendezvous import state as agreement
from distdbg.launch.rendezvous.board import RendezvousBoard
from distdbg.launch.rendezvous.round import NodeFacts
from distdbg.runtime.store import HashStore


def do_nothing() -> None:
    pass


@pytest.fixture(autouse=True)
def nobody_loses_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "TURN_S", 600.0)


def test_whoever_has_its_turn_takes_in_those_behind_it() -> None:
    store = HashStore()
    boards = [RendezvousBoard(store, "job", "here:1") for _ in range(4)]
    over: dict[int, bool] = {}

    def come(number: int) -> None:
        with boards[number].turn(do_nothing, f"{number}") as turn:
            over[number] = turn.is_over

    with boards[0].turn(do_nothing, "0") as first:
        others = [threading.Thread(target=come, args=(number,)) for number in (1, 2, 3)]
        for count, other in enumerate(others, 1):
            other.start()
            until = time.monotonic() + 60
            while len(first.behind()) < count:
                assert time.monotonic() < until
        assert first.behind() == [b"1", b"2", b"3"]
        first.taken_in = 2
    for other in others:
        other.join()
    assert over == {1: True, 2: True, 3: False}


def test_who_gives_up_in_the_line_asks_for_nothing_any_more() -> None:
    store = HashStore()
    first, second = RendezvousBoard(store, "job", "here:1"), RendezvousBoard(store, "job", "here:1")

    def give_up() -> None:
        raise KeyboardInterrupt

    with first.turn(do_nothing, "first") as turn:
        with pytest.raises(KeyboardInterrupt), second.turn(give_up, "second"):
            pass
        assert turn.behind() == [b""]


def test_what_somebody_asks_for_is_done_as_if_by_itself() -> None:
    def member(name: str, place: int) -> agreement.LauncherMember:
        facts = NodeFacts(name=name, addr="10.0.0.1", host=f"h-{name}", nproc=2)
        return agreement.LauncherMember(facts=facts, place=place)

    state = agreement.come(agreement.RendezvousState(min_nodes=3, max_nodes=3), member("a", 0), -1)
    asks = agreement.to_asks(member("b", 1), -1).encode()
    assert agreement.come_as_asked(state, asks) == agreement.come(state, member("b", 1), -1)
    same_place = agreement.to_asks(member("c", 0), -1).encode()
    assert agreement.come_as_asked(state, same_place) is None
    for nonsense in (b"{", b"[]", b"[{}, 1]", b'[{"facts": 1, "place": 0}, 0]'):
        assert agreement.come_as_asked(state, nonsense) is None
