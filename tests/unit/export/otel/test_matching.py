"""Which send a recv took: the number that both sides count, or None; never a wrong one."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from distdbg.export.otel.matching import MessageNumbers


def test_one_tag_is_numbered_as_the_record_does_also_after_a_gap() -> None:
    numbers = MessageNumbers()
    assert numbers.send(1, 0, 5, 1) == 1
    assert numbers.send(1, 0, 5, 1000) == 1000


def test_each_tag_is_numbered_by_itself() -> None:
    numbers = MessageNumbers()
    assert [numbers.send(1, 0, tag, seq) for seq, tag in enumerate((1, 2, 2, 1), 1)] == [1, 1, 2, 2]
    assert [numbers.recv(1, 3, tag, seq) for seq, tag in enumerate((2, 2, 1, 1), 1)] == [1, 2, 1, 2]


def test_after_a_gap_in_mixed_tags_nothing_is_known() -> None:
    numbers = MessageNumbers()
    for seq, tag in enumerate((1, 2), 1):
        numbers.send(1, 0, tag, seq)
    assert numbers.send(1, 0, 1, 9) is None
    assert numbers.send(1, 0, 1, 10) is None
    assert numbers.send(1, 2, 1, 1) == 1  # to another


def test_a_recv_from_any_counts_for_whom_it_was_from() -> None:
    numbers = MessageNumbers()
    assert numbers.recv(1, 3, 0, 1) == 1
    assert numbers.recv_any(1, 0, 1, 10, 3) == 2
    assert numbers.recv(1, 3, 0, 2) == 3
    assert numbers.recv_any(1, 0, 2, 12, None) is None
    assert numbers.end_any(1, 0, 12, 4) == 1


def test_a_recv_beside_an_open_one_from_any_is_not_known() -> None:
    numbers = MessageNumbers()
    numbers.recv_any(1, 0, 1, 10, None)
    assert numbers.recv(1, 3, 0, 1) is None
    assert numbers.end_any(1, 0, 10, 3) is None
    assert numbers.recv(1, 3, 7, 2) == 1  # of another tag


def test_recvs_from_any_that_were_overwritten_make_all_unknown() -> None:
    numbers = MessageNumbers()
    assert numbers.recv_any(1, 0, 5, 10, 3) is None
    assert numbers.recv(1, 3, 0, 1) is None


@given(st.integers(0, 10**6))
def test_what_both_sides_number_alike_is_the_same_message(seed: int) -> None:
    rng = random.Random(seed)
    sender, receiver = MessageNumbers(), MessageNumbers()
    tags = [rng.randrange(3) for _ in range(30)]
    sent: dict[int, list[int]] = {}
    ids = {}
    for seq, tag in enumerate(tags, 1):
        number = sender.send(1, 1, tag, seq)
        ids[tag, number] = seq
        sent.setdefault(tag, []).append(seq)
    order = list(tags)
    rng.shuffle(order)
    named = any_seq = 0
    for op, tag in enumerate(order, 1):
        if rng.random() < 0.4:
            any_seq += 1
            number = receiver.recv_any(1, tag, any_seq, op, 0)
        else:
            named += 1
            number = receiver.recv(1, 0, tag, named)
        assert number is not None
        assert ids[tag, number] == sent[tag].pop(0)
