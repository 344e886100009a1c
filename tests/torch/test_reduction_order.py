"""The backend adds up in gloo's order: its results are gloo's to the last bit, for any size, dtype and op.

With `DISTDBG_TORCH_SUMS=ranks` it keeps the order of the ranks, as `distdbg.all_reduce` always does; ranks
that are told different orders are told that they differ.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from warm_ranks import run_warm_ranks

if TYPE_CHECKING:
    from warm_python import WarmPython

torch: Any = pytest.importorskip("torch")
pytestmark = [pytest.mark.ranks, pytest.mark.slow]

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64")
COUNTS = (1, 2, 3, 7, 241, 1000, 20_011)
MIB = 1 << 20


def counts(size: int, dtype: str) -> Iterator[int]:
    """Sizes of arrays: also those around which gloo cuts otherwise."""
    yield from COUNTS
    for chunk in (1, 2, 16):
        yield from (2 * size * chunk - 1, 2 * size * chunk, 2 * size * chunk + 1)
    if dtype == ("bfloat16" if size == 3 else "float32"):
        # Two segments of 1 MiB for each rank are the most before there is a third.
        limit = 2 * size * MIB // getattr(torch, dtype).itemsize
        yield from (limit, limit + 1, limit * 7 // 6 + 1)


def values(count: int, dtype: str, rank: int, seed: int) -> Any:
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    made = torch.randn(count, generator=generator, dtype=getattr(torch, dtype))
    return made * 3.0 ** (rank % 3)


def all_reduce(x: Any, op: Any) -> Any:
    torch.distributed.all_reduce(x, op=op)
    return x


def all_reduce_async(x: Any, op: Any) -> Any:
    torch.distributed.all_reduce(x, op=op, async_op=True).wait()
    return x


def all_reduce_coalesced(x: Any, op: Any) -> Any:
    parts = list(x.tensor_split((len(x) // 3, len(x) // 3, len(x) // 2)))
    parts = [part.clone() for part in parts if len(part)]
    options = torch.distributed.AllreduceCoalescedOptions()
    options.reduceOp = op
    torch.distributed.group.WORLD.allreduce_coalesced(parts, options).wait()
    return torch.cat(parts)


def reduce(x: Any, op: Any) -> Any:
    root = len(x) % torch.distributed.get_world_size()
    torch.distributed.reduce(x, root, op=op)
    return x if torch.distributed.get_rank() == root else x[:0]


def reduce_scatter_tensor(x: Any, op: Any) -> Any:
    size = torch.distributed.get_world_size()
    block = len(x) // size
    found = torch.empty(block, dtype=x.dtype)
    torch.distributed.reduce_scatter_tensor(found, x[: block * size].clone(), op=op)
    return found


def reduce_scatter(x: Any, op: Any) -> Any:
    size = torch.distributed.get_world_size()
    blocks = [block.clone() for block in x[: len(x) // size * size].chunk(size)]
    found = torch.empty_like(blocks[0])
    torch.distributed.reduce_scatter(found, blocks, op=op)
    return found


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    function.__name__: function
    for function in (
        all_reduce,
        all_reduce_async,
        all_reduce_coalesced,
        reduce,
        reduce_scatter_tensor,
        reduce_scatter,
    )
}


def begin(backend: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        backend,
        init_method=f"file://{os.environ['TORCH_FILE']}-{backend}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def cases(size: int, name: str) -> Iterator[tuple[int, str, str]]:
    for dtype in DTYPES:
        for count in counts(size, dtype):
            if name.startswith("reduce_scatter") and count < size:
                continue
            for op in ("SUM", "AVG", "PRODUCT"):
                # gloo has no other op for complex numbers; large arrays are added up once.
                if op == "SUM" or (not dtype.startswith("complex") and count < 1000):
                    yield count, dtype, op


def compare(names: list[str]) -> list[str]:
    """What differs from gloo's results, in words."""
    size, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    found: dict[str, dict[Any, Any]] = {}
    for backend in ("gloo", "distdbg"):
        begin(backend)
        of: dict[Any, Any] = found.setdefault(backend, {})
        for name in names:
            for seed, (count, dtype, op) in enumerate(cases(size, name)):
                x = values(count, dtype, rank, seed)
                result = FUNCTIONS[name](x, getattr(torch.distributed.ReduceOp, op))
                of[name, count, dtype, op] = result.contiguous().view(torch.uint8)
        torch.distributed.destroy_process_group()
    ours, theirs = found["distdbg"], found["gloo"]
    assert ours.keys() == theirs.keys()
    return [str(case) for case in ours if not torch.equal(ours[case], theirs[case])]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {
        "TORCH_FILE": os.fspath(tmp_path / "torch-store"),
        "DISTDBG_RUN_DIR": os.fspath(tmp_path / "run"),
    }


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_every_reduction_has_gloos_bits(
    size: int, warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    names = list(FUNCTIONS)
    found = run_warm_ranks(warm_python, tmp_path, compare, size, env=env, names=names)
    assert found == [[]] * size


def test_they_have_where_ranks_do_not_read_each_others_arrays(
    warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    env["DISTDBG_SINGLE_COPY"] = "0"
    found = run_warm_ranks(warm_python, tmp_path, compare, 3, env=env, names=["all_reduce"])
    assert found == [[]] * 3


def in_shared_arrays() -> list[bool]:
    """Whether a sum in arrays that all ranks have mapped is that of others, and was made where they are."""
    import distdbg

    begin("distdbg")
    rank, count = torch.distributed.get_rank(), 300_001
    shared = torch.from_numpy(distdbg.empty(count, dtype="float32"))
    found = []
    for seed in range(3):  # with the first op, ranks learn that there are shared arrays
        plain = values(count, "float32", rank, seed)
        shared.copy_(plain)
        torch.distributed.all_reduce(plain)
        before = distdbg.shared_arrays().ops
        torch.distributed.all_reduce(shared)
        went_in_place = distdbg.shared_arrays().ops > before
        found += [torch.equal(shared, plain), went_in_place or seed == 0]
    del shared
    torch.distributed.destroy_process_group()
    return found


def test_they_have_where_ranks_write_to_each_others_arrays(
    warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    found = run_warm_ranks(warm_python, tmp_path, in_shared_arrays, 3, env=env)
    assert found == [[True] * 6] * 3


# --------------------------------------------------------------------- the order of the ranks


def add_up() -> tuple[list[float], list[float]]:
    """By torch's function on our backend, and by our own."""
    import distdbg

    begin("distdbg")
    rank = torch.distributed.get_rank()
    by_theirs, by_ours = (values(1001, "float32", rank, 0) for _ in range(2))
    torch.distributed.all_reduce(by_theirs)
    distdbg.all_reduce(by_ours)
    torch.distributed.destroy_process_group()
    return by_theirs.tolist(), by_ours.tolist()


@pytest.mark.parametrize("sums", ["ranks", "gloo"])
def test_our_own_sums_are_in_the_order_of_the_ranks_and_torchs_where_it_is_said(
    sums: str, warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    env["DISTDBG_TORCH_SUMS"] = sums
    total = values(1001, "float32", 0, 0)
    for rank in (1, 2, 3):
        total += values(1001, "float32", rank, 0)
    expected = total.tolist()
    for by_theirs, by_ours in run_warm_ranks(warm_python, tmp_path, add_up, 4, env=env):
        assert by_ours == expected
        assert (by_theirs == expected) == (sums == "ranks")


def differ() -> list[str]:
    """What the ranks are told of a sum, and of what is exact in any order."""
    from distdbg.errors import MismatchError

    rank = int(os.environ["RANK"])
    os.environ["DISTDBG_TORCH_SUMS"] = "ranks" if rank == 1 else "gloo"
    begin("distdbg")
    said = []
    options = torch.distributed.AllreduceCoalescedOptions()
    for dtype, op in (("float32", "SUM"), ("float32", "MAX"), ("int64", "SUM")):
        x, y = (torch.full((3,), rank, dtype=getattr(torch, dtype)) for _ in range(2))
        options.reduceOp = getattr(torch.distributed.ReduceOp, op)
        try:
            torch.distributed.all_reduce(x, op=options.reduceOp)
            torch.distributed.group.WORLD.allreduce_coalesced([y, y.clone()], options).wait()
            said.append(f"{x.tolist()} {y.tolist()}")
        except MismatchError as error:
            lines = str(error).splitlines()
            said += [lines[0], lines[-1]]
    torch.distributed.destroy_process_group()
    return said


def test_ranks_that_are_told_different_orders_are_told_so(
    warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    for said in run_warm_ranks(warm_python, tmp_path, differ, 3, env=env):
        assert said == [
            "all_reduce #1 on group 'world' differs between ranks: sums in gloo's order on ranks 0,2, "
            "sums in rank order on rank 1",
            "  hint: use one function of one library on all ranks, and DISTDBG_TORCH_SUMS alike on all",
            "[2.0, 2.0, 2.0] [2.0, 2.0, 2.0]",
            "[3, 3, 3] [3, 3, 3]",
        ]


def misspell() -> list[str]:
    """What is said of an order that there is none; then of a sum, in a group made after it was corrected."""
    from distdbg.errors import ConfigError

    os.environ["DISTDBG_TORCH_SUMS"] = "glo"
    said = []
    try:
        begin("distdbg")
    except ConfigError as error:
        said.append(str(error).splitlines()[0])
    os.environ["DISTDBG_TORCH_SUMS"] = "gloo"
    os.environ["TORCH_FILE"] += "-corrected"
    begin("distdbg")
    x = torch.ones(2)
    torch.distributed.all_reduce(x)
    torch.distributed.destroy_process_group()
    return [*said, str(x.tolist())]


def test_an_order_that_there_is_none_leaves_no_group_behind(
    warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    for said in run_warm_ranks(warm_python, tmp_path, misspell, 2, env=env):
        assert said == [
            "the variable DISTDBG_TORCH_SUMS='glo' is not valid; expected one of gloo, ranks",
            "[2.0, 2.0]",
        ]


def as_one_and_one_by_one() -> list[Any]:
    """Whether blocks of the same arrays have their own sums; then what ranks are told that mix them."""
    from distdbg.errors import MismatchError

    begin("distdbg")
    rank, world = torch.distributed.get_rank(), torch.distributed.group.WORLD
    one_by_one = [values(count, "float32", rank, 0) for count in (1000, 700)]
    as_one = torch.cat(one_by_one)
    for x in (*one_by_one, as_one):
        torch.distributed.all_reduce(x)

    def add(is_one: bool) -> list[Any]:
        arrays = [values(count, "float32", rank, 0) for count in (1000, 700)]
        if is_one:
            options = torch.distributed.AllreduceCoalescedOptions()
            world.allreduce_coalesced(arrays, options).wait()
        else:
            world._start_coalescing(torch.device("cpu"))
            for x in arrays:
                world.allreduce([x], torch.distributed.AllreduceOptions())
            world._end_coalescing(torch.device("cpu")).wait()
        return arrays

    right = []
    for is_one in (False, True, False, True):
        expected = as_one if is_one else torch.cat(one_by_one)
        right.append(torch.equal(torch.cat(add(is_one)), expected))
    said = "nothing"
    try:
        add(rank == 1)
    except MismatchError as error:
        said = str(error).splitlines()[0]
    torch.distributed.destroy_process_group()
    return [*right, said]


def test_blocks_added_up_as_one_array_are_told_from_blocks_that_are_not(
    warm_python: WarmPython, tmp_path: Path, env: dict[str, str]
) -> None:
    found = run_warm_ranks(warm_python, tmp_path, as_one_and_one_by_one, 3, env=env)
    said = (
        "all_reduce #12 on group 'world' differs between ranks: sums in gloo's order on ranks 0,2, "
        "sums of the whole block in gloo's order on rank 1"
    )
    assert found == [[True, True, True, True, said]] * 3
