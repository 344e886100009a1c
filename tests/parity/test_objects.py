"""Collectives and messages of Python objects."""

from __future__ import annotations

from typing import Any

import pytest

import distdbg as dist
from tests.parity.promise import on_ranks, promise


class NoRecordError(Exception):
    """Like many of programs: made of more than what its base class is given."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("it cannot be sent")


@promise("`all_gather_object` collects an object of each rank in a list on all ranks")
def test_all_gather_object() -> None:
    def run(rank: int) -> list[Any]:
        output: list[Any] = [None] * 3
        dist.all_gather_object(output, ["foo", 12, {1: 2}][rank])
        return output

    assert on_ranks(run, 3) == [["foo", 12, {1: 2}]] * 3


@promise("The list of `all_gather_object` has a place for each rank")
def test_all_gather_object_into_too_few() -> None:
    def run(rank: int) -> None:
        with pytest.raises(ValueError, match="all_gather_object"):
            dist.all_gather_object([None], "x")

    on_ranks(run)


@promise("`gather_object` collects an object of each rank in a list on `dst`; 0 if none is given")
@pytest.mark.parametrize("dst", [None, 1])
def test_gather_object(dst: int | None) -> None:
    def run(rank: int) -> list[Any] | None:
        output: list[Any] | None = [None, None] if rank == (dst or 0) else None
        dist.gather_object({"rank": rank}, output, dst)
        return output

    results = on_ranks(run)
    assert results[dst or 0] == [{"rank": 0}, {"rank": 1}]
    assert results[1 - (dst or 0)] is None


@promise("`gather_object` takes a list on `dst` and nowhere else")
def test_gather_object_elsewhere() -> None:
    def run(rank: int) -> None:
        output = [None, None] if rank == 1 else None
        with pytest.raises(ValueError, match="object_gather_list"):
            dist.gather_object("x", output, 0)

    on_ranks(run)


@promise("`broadcast_object_list` replaces the objects of the list by those of `src`")
def test_broadcast_object_list() -> None:
    def run(rank: int) -> list[Any]:
        objects: list[Any] = ["foo", 12, {1: 2}] if rank == 0 else [None] * 3
        dist.broadcast_object_list(objects, src=0)
        return objects

    assert on_ranks(run) == [["foo", 12, {1: 2}]] * 2


@promise("`broadcast_object_list` takes `src` 0 when none is given")
def test_broadcast_object_list_without_src() -> None:
    def run(rank: int) -> list[Any]:
        objects: list[Any] = [rank]
        dist.broadcast_object_list(objects)
        return objects

    assert on_ranks(run) == [[0], [0]]


@promise("The lists of `broadcast_object_list` are equally long on all ranks")
def test_lists_of_different_lengths() -> None:
    def run(rank: int) -> None:
        with pytest.raises(RuntimeError, match="broadcast_object_list"):
            dist.broadcast_object_list([None] * (1 + rank), 0)

    on_ranks(run)


@promise("`scatter_object_list` puts object r of `src` at place 0 of the list of rank r")
def test_scatter_object_list() -> None:
    def run(rank: int) -> list[Any]:
        output: list[Any] = [None]
        given = ["foo", 12, {1: 2}] if rank == 0 else None
        dist.scatter_object_list(output, given, src=0)
        return output

    assert on_ranks(run, 3) == [["foo"], [12], [{1: 2}]]


@promise("The input of `scatter_object_list` has an object for each rank")
def test_scatter_too_few_objects() -> None:
    def run(rank: int) -> None:
        if rank == 0:
            with pytest.raises(ValueError, match="scatter_object_input_list"):
                dist.scatter_object_list([None], ["x"], 0)

    on_ranks(run)


@promise("The output of `scatter_object_list` has at least one place")
def test_scatter_into_nothing() -> None:
    def run(rank: int) -> None:
        with pytest.raises((ValueError, RuntimeError), match="at least one object"):
            dist.scatter_object_list([], ["x"])

    on_ranks(run, 1)


@promise("`send_object_list` and `recv_object_list` bring a list of objects to another rank")
@pytest.mark.parametrize("use_batch", [False, True])
def test_messages_of_objects(use_batch: bool) -> None:
    def run(rank: int) -> list[Any]:
        objects: list[Any] = ["foo", 12, {1: 2}] if rank == 0 else [None] * 3
        if rank == 0:
            dist.send_object_list(objects, dst=1, use_batch=use_batch)
        else:
            assert dist.recv_object_list(objects, src=0, use_batch=use_batch) == 0
        return objects

    assert on_ranks(run) == [["foo", 12, {1: 2}]] * 2


@promise("`recv_object_list` without `src` takes from any rank, and returns which one")
def test_objects_from_any_rank() -> None:
    def run(rank: int) -> Any:
        objects: list[Any] = [rank]
        if rank == 1:
            return dist.send_object_list(objects, 0)
        return dist.recv_object_list(objects), objects

    assert on_ranks(run) == [(1, [1]), None]


@promise("Object collectives take `group`, and ranks of it as `group_src` and `group_dst`")
def test_objects_in_a_group() -> None:
    def run(rank: int) -> list[Any]:
        group = dist.new_group([1, 2])
        objects: list[Any] = [rank]
        if rank:
            dist.broadcast_object_list(objects, group=group, group_src=1)
        return objects

    assert on_ranks(run, 3) == [[0], [2], [2]]


@promise("An object that cannot be pickled raises")
def test_no_pickle() -> None:
    def run(rank: int) -> None:
        with pytest.raises((ValueError, TypeError), match="cannot be sent"):
            dist.all_gather_object([None], Unpicklable())

    on_ranks(run, 1)


@promise(
    "An object that cannot be unpickled raises",
    "more",
    "what it raised says in a note whose object it was, and of which class",
)
@pytest.mark.parametrize("how", ["gather", "all_gather", "broadcast", "scatter", "message"])
def test_no_unpickle(how: str) -> None:
    def run(rank: int) -> list[str]:
        mine = NoRecordError(7, "no number") if rank == 1 else {"rank": rank}
        output: list[Any] = [None, None]
        try:
            if how == "gather":
                dist.gather_object(mine, output if rank == 0 else None)
            elif how == "all_gather":
                dist.all_gather_object(output, mine)
            elif how == "broadcast":
                dist.broadcast_object_list([0, mine], src=1)
            elif how == "scatter":
                dist.scatter_object_list([None], [mine, mine] if rank == 1 else None, src=1)
            elif rank == 1:
                dist.send_object_list([mine], 0)
            else:
                dist.recv_object_list(output[:1])
        except TypeError as error:
            return error.__notes__
        return []

    first = on_ranks(run)[0]
    assert "the object of rank 1 cannot be unpickled" in first[0]
    assert first[0].endswith(f"({__name__}.NoRecordError)")
    assert first[1].startswith("hint: pickle makes an exception from its `args`")


@promise("Object collectives outside of the group do nothing but warn")
def test_objects_outside() -> None:
    def run(rank: int) -> list[Any]:
        group = dist.new_group([0])
        output: list[Any] = [None]
        dist.all_gather_object(output, rank, group)
        return output

    with pytest.warns(UserWarning, match="all_gather_object"):
        assert on_ranks(run) == [[0], [None]]
