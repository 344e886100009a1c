"""Numbers among arguments: one rule for all functions, and an error in words before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError, WrongTypeError

X = np.ones(2)


class Index:
    """What is no int and can be one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


def in_two_ranks(program: Callable[[], Any]) -> list[Any]:
    return dist.run_threads(program, 2, timeout_s=60)


@pytest.mark.parametrize("number", [int, np.int64, np.uint8, Index], ids=str)
def test_whatever_is_a_whole_number_is_one_everywhere(number: Callable[[int], Any]) -> None:
    def program() -> list[Any]:
        me, other = dist.get_rank(), 1 - dist.get_rank()
        got = np.zeros(2)
        dist.broadcast(X.copy(), number(0))
        dist.reduce(X.copy(), number(1))
        if me == 0:
            dist.send(X, number(1), tag=number(7))
        else:
            dist.recv(got, number(0), tag=number(7))
        dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, X, number(other)), dist.P2POp(dist.irecv, got, number(other))]
        )[1].wait()
        out = np.zeros(2)
        dist.all_to_all_single(out, X, [number(1)] * 2, np.array([1, 1]))
        group = dist.new_group([number(0), number(1)])
        dist.barrier(group, device_ids=[number(0)])
        return [
            got.tolist(),
            dist.get_group_rank(group, number(1)),
            dist.get_global_rank(group, number(0)),
        ]

    with pytest.warns(dist.LatentWarning):  # the send of the batch is not waited for
        assert in_two_ranks(program) == [[[1.0, 1.0], 1, 0]] * 2


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "send": (lambda: dist.send(X, "1"), "send: dst must be a whole number, not '1' (str)"),
    "recv": (lambda: dist.recv(X, 1.0), "recv: src must be a whole number, not 1.0 (float)"),
    "isend": (lambda: dist.isend(X, group_dst="1"), "isend: group_dst must be a whole number"),
    "tag": (lambda: dist.send(X, 1, tag="x"), "send: tag must be a whole number, not 'x' (str)"),
    "root": (lambda: dist.broadcast(X, "0"), "broadcast: src must be a whole number"),
    "P2POp": (lambda: dist.P2POp(dist.isend, X, "1"), "P2POp: peer must be a whole number"),
    "splits": (
        lambda: dist.all_to_all_single(X.copy(), X, [1.0, 1.0], [1, 1]),
        "all_to_all_single: output_split_sizes[0] must be a whole number, not 1.0 (float)",
    ),
    "text of splits": (
        lambda: dist.all_to_all_single(X.copy(), X, None, "11"),
        "all_to_all_single: input_split_sizes must be a list of whole numbers, not '11' (str)",
    ),
    "members": (lambda: dist.new_group(["0"]), "new_group: ranks[0] must be a whole number"),
    "member list": (lambda: dist.new_group(1), "new_group: ranks must be a list of whole numbers"),
    "size": (lambda: dist.new_subgroups("1"), "new_subgroups: group_size must be a whole number"),
    "split_group": (
        lambda: dist.split_group(None, [["0"], ["1"]]),
        "split_group: ranks[0] must be a whole number",
    ),
    "devices": (
        lambda: dist.barrier(device_ids=3),
        "barrier: device_ids must be a list of whole numbers, not 3 (int)",
    ),
    "get_group_rank": (
        lambda: dist.get_group_rank(dist.group.WORLD, "0"),
        "get_group_rank: global_rank must be a whole number",
    ),
    "add": (
        lambda: dist.HashStore().add("k", 1.5),
        "store.add: amount must be a whole number, not 1.5 (float)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_text_and_floats_are_refused_in_words_and_nothing_is_sent(case: str) -> None:
    call, words = WRONG[case]

    def program() -> str:
        with pytest.raises(WrongTypeError) as caught:
            call()
        assert isinstance(caught.value, UsageError)
        assert isinstance(caught.value, TypeError)  # as torch has it
        total = np.ones(1)
        dist.all_reduce(total)
        assert total[0] == 2.0
        return str(caught.value)

    for text in in_two_ranks(program):
        assert text.startswith(words)


@pytest.mark.parametrize(
    ("rank", "world_size"), [("0", "1"), (np.int64(0), np.int32(1)), (" 0", Index(1))]
)
def test_a_place_in_the_world_may_be_text_as_argparse_gives_it(rank: Any, world_size: Any) -> None:
    dist.init_process_group(rank=rank, world_size=world_size, store=dist.HashStore())
    try:
        assert (dist.get_rank(), dist.get_world_size()) == (0, 1)
        assert type(dist.get_rank()) is int
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": "zero"}, "rank='zero' is not a number"),
        ({"rank": 0.0}, "rank must be a whole number, not 0.0 (float)"),
        ({"world_size": "2.0"}, "world_size='2.0' is not a number"),
        ({"store": "x"}, "init_process_group: store must be a Store, not 'x'"),
        ({"init_method": 5}, "init_process_group: init_method must be a URL as text, not 5"),
        ({"group_name": 3}, "init_process_group: group_name must be text, not 3"),
        ({"_ranks": ["0"]}, "init_process_group: _ranks[0] must be a whole number"),
        ({"timeout": "30"}, "timeout must be a timedelta or seconds, not '30'"),
    ],
    ids=str,
)
def test_init_refuses_what_it_cannot_use(arguments: dict[str, Any], words: str) -> None:
    facts = {"rank": 0, "world_size": 1, **arguments}
    if "init_method" not in facts:
        facts.setdefault("store", dist.HashStore())
    with pytest.raises(UsageError) as caught:
        dist.init_process_group(**facts)
    assert words in str(caught.value)
    assert not dist.is_initialized()
