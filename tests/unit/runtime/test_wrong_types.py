"""Arguments of a type that cannot be used: refused in words, before anything is sent."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import UsageError
from tests.support.store_ranks import run_store_ranks


def local() -> Any:
    return lambda: None


CALLS: dict[str, Callable[[], Any]] = {
    "all_gather_object: an object of type function cannot be pickled": lambda: (
        dist.all_gather_object([None, None], local())
    ),
    "gather_object: an object of type function cannot": lambda: dist.gather_object(
        local(), [None, None] if dist.get_rank() == 0 else None
    ),
    "all_gather_coalesced: input_tensor_list must be a list of arrays, not generator": lambda: (
        dist.all_gather_coalesced([], (np.ones(1) for _ in range(1)))
    ),
    r"output_tensor_lists\[0\] must be a list of 1 arrays, not int": lambda: (
        dist.all_gather_coalesced([1, 2], [np.ones(1)])
    ),
    "ranks_per_subgroup_list must be a list of lists of ranks, not 5": lambda: (
        dist.new_subgroups_by_enumeration(5)
    ),
    "split_group: split_ranks must be a list of lists of ranks, not '01'": lambda: dist.split_group(
        None, "01"
    ),
    "split_group: split_ranks is empty": lambda: dist.split_group(None, []),
    "group_desc must be text, not 5": lambda: dist.new_group(group_desc=5),
    "supports_complex takes a ReduceOp, not 'sum'": lambda: dist.supports_complex("sum"),
}


@pytest.mark.parametrize("words", CALLS)
def test_it_is_said_and_the_group_goes_on(words: str) -> None:
    def run(rank: int) -> list[float]:
        with pytest.raises(UsageError, match=words):
            CALLS[words]()
        x = np.ones(2)
        dist.all_reduce(x)
        return x.tolist()

    assert run_store_ranks(run, 2, backend="gloo") == [[2.0, 2.0]] * 2


WRONG_TYPES: dict[str, Callable[[], Any]] = {
    "all_reduce: tensor is str, not an array": lambda: dist.all_reduce("text"),
    "tensor is a NumPy scalar": lambda: dist.all_reduce(np.float64(1)),
    "all_reduce: group must be a ProcessGroup": lambda: dist.all_reduce(np.ones(1), group="world"),
    "timeout must be a timedelta or seconds, not '5'": lambda: dist.barrier(timeout="5"),
    "a reduce op is a ReduceOp": lambda: dist.all_reduce(np.ones(1), "sum"),
    "all_gather: tensor_list must be a list of 2 arrays, not int": lambda: dist.all_gather(
        3, np.ones(1)
    ),
    "input_tensor_list must be a list of arrays": lambda: dist.all_gather_coalesced([], 3),
    r"output_tensor_lists\[0\] must be a list": lambda: dist.all_gather_coalesced(
        [1, 2], [np.ones(1)]
    ),
    "object_list must be a list of 2 places, got str": lambda: dist.all_gather_object("ab", 1),
    "the list must have at least one object": lambda: dist.broadcast_object_list("ab"),
    "batch_isend_irecv expects a list of P2POp": lambda: dist.batch_isend_irecv(3),
    "destroy_process_group: not a group": lambda: dist.destroy_process_group("world"),
    "set_debug_level expects a DebugLevel": lambda: dist.set_debug_level("INFO"),
    "the name of a backend is a str": lambda: dist.Backend(3),
    "a PrefixStore needs a Store": lambda: dist.PrefixStore("a", "b"),
    "a timeout is a timedelta or seconds, not str": lambda: dist.HashStore().set_timeout("5"),
}


@pytest.mark.parametrize("words", WRONG_TYPES)
def test_a_wrong_type_is_a_type_error_too(words: str) -> None:
    def run(rank: int) -> None:
        with pytest.raises(TypeError, match=words) as caught:
            WRONG_TYPES[words]()
        assert isinstance(caught.value, UsageError)

    run_store_ranks(run, 2, backend="gloo")


def test_the_words_of_pickle_are_the_cause() -> None:
    def run(rank: int) -> None:
        with pytest.raises(UsageError) as caught:
            dist.broadcast_object_list([local()])
        assert isinstance(caught.value.__cause__, AttributeError)

    run_store_ranks(run, 1, backend="gloo")


def test_the_ranks_of_a_group_that_one_is_not_in_are_torchs_key_error_in_words() -> None:
    def run(rank: int) -> None:
        group = dist.new_group([0])
        if rank == 1:
            with pytest.raises(KeyError) as caught:
                dist.get_process_group_ranks(group)
            assert isinstance(caught.value, UsageError)
            said = "get_process_group_ranks: this rank is not in the given group: "
            assert str(caught.value) == f"{said}GroupMember.NON_GROUP_MEMBER"
            assert type(pickle.loads(pickle.dumps(caught.value))) is type(caught.value)

    run_store_ranks(run, 2, backend="gloo")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: dist.TCPStore("127.0.0.1", 0, 1.5, True),
            "TCPStore: world_size must be a whole number",
        ),
        (lambda: dist.TCPStore("127.0.0.1", "0", 1, True), "TCPStore: port must be a whole number"),
        (lambda: dist.TCPStore(5, 0, 1, True), "TCPStore: host_name must be text, not 5"),
        (lambda: dist.FileStore(5, 1), "FileStore: file_name must be a path, not 5"),
        (lambda: dist.FileStore("x", 1.0), "FileStore: world_size must be a whole number"),
        (lambda: dist.P2POp("x", np.ones(1), 0), "P2POp: op must be isend or irecv"),
    ],
)
def test_a_store_or_op_that_cannot_be_is_not_begun(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words) as caught:
        make()
    assert isinstance(caught.value, UsageError)
