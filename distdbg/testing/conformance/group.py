"""What every process group does, under any API that is spelled as torch.distributed. Run it inside of ranks:

    dist.init_process_group(...)
    failures = run_checks(Api(dist, array=np.array, values=lambda array: array.tolist()))

The same checks hold for `distdbg` on NumPy arrays, for `torch.distributed` on the backend "distdbg", and for
torch's own backends: what a backend lacks is named in `without`. Inputs are small integers, so results are
exact in every dtype and every order. A check that fails leaves the group in step only where all ranks fail
in it alike; so do the checks of a healthy group.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

#: By name: what takes an Api and asserts.
CHECKS: dict[str, Callable[[Api], None]] = {}

_DTYPES = ("float32", "float64", "int32", "int64", "uint8")


@dataclass(frozen=True, slots=True)
class Api:
    """One library, as its users see it."""

    dist: Any
    """The module: `all_reduce`, `get_rank`, ..."""
    array: Callable[..., Any]
    """array([1, 2], dtype="float32")"""
    values: Callable[[Any], list[Any]]
    """The elements of an array as numbers."""

    @property
    def rank(self) -> int:
        """This rank's number."""
        return int(self.dist.get_rank())

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self.dist.get_world_size())

    def full(self, value: float, count: int = 3, dtype: str = "float32") -> Any:
        """An array of equal elements."""
        return self.array([value] * count, dtype=dtype)

    def expect(self, array: Any, *wanted: float) -> None:
        """Say what differs."""
        found = self.values(array)
        assert found == list(wanted), f"rank {self.rank}: {found}, not {list(wanted)}"


def run_checks(api: Api, without: Collection[str] = ()) -> dict[str, str]:
    """Run all but those in `without`, in order; what failed by name. All ranks call it."""
    failures = {}
    for name, check in CHECKS.items():
        if name in without:
            continue
        try:
            check(api)
        except Exception as error:  # noqa: BLE001 - told to whoever asked
            failures[name] = f"{type(error).__name__}: {error}"
    return failures


def _check(function: Callable[[Api], None]) -> Callable[[Api], None]:
    CHECKS[function.__name__] = function
    return function


@_check
def all_reduce_adds_up_in_every_dtype(api: Api) -> None:
    total = sum(range(1, api.size + 1))
    for dtype in _DTYPES:
        x = api.full(api.rank + 1, dtype=dtype)
        api.dist.all_reduce(x)
        api.expect(x, total, total, total)


@_check
def all_reduce_finds_the_least_the_greatest_and_the_product(api: Api) -> None:
    product = 1
    for rank in range(api.size):
        product *= rank + 1
    for name, wanted in {"MIN": 1, "MAX": api.size, "PRODUCT": product}.items():
        x = api.full(api.rank + 1, dtype="int64")
        api.dist.all_reduce(x, op=getattr(api.dist.ReduceOp, name))
        api.expect(x, wanted, wanted, wanted)


@_check
def all_reduce_combines_bits(api: Api) -> None:
    for name, wanted in {"BAND": 1, "BOR": 1, "BXOR": api.size % 2}.items():
        x = api.full(1, dtype="int64")
        api.dist.all_reduce(x, op=getattr(api.dist.ReduceOp, name))
        api.expect(x, wanted, wanted, wanted)


@_check
def broadcast_comes_from_any_root(api: Api) -> None:
    for root in range(api.size):
        x = api.full(api.rank)
        api.dist.broadcast(x, src=root)
        api.expect(x, root, root, root)


@_check
def reduce_goes_to_any_root(api: Api) -> None:
    for root in range(api.size):
        x = api.full(api.rank + 1)
        api.dist.reduce(x, dst=root)
        if api.rank == root:
            api.expect(x, *[sum(range(1, api.size + 1))] * 3)


@_check
def all_gather_fills_lists_and_flat_arrays(api: Api) -> None:
    mine = api.full(api.rank, 2)
    blocks = [api.full(-1, 2) for _ in range(api.size)]
    api.dist.all_gather(blocks, mine)
    flat = api.full(-1, 2 * api.size)
    api.dist.all_gather_into_tensor(flat, mine)
    api.expect(flat, *[rank for rank in range(api.size) for _ in range(2)])
    for rank, block in enumerate(blocks):
        api.expect(block, rank, rank)


@_check
def gather_and_scatter_are_inverse(api: Api) -> None:
    mine, is_root = api.full(api.rank, 2), api.rank == api.size - 1
    blocks = [api.full(-1, 2) for _ in range(api.size)] if is_root else None
    api.dist.gather(mine, blocks, dst=api.size - 1)
    back = api.full(-1, 2)
    api.dist.scatter(back, blocks, src=api.size - 1)
    api.expect(back, api.rank, api.rank)


@_check
def reduce_scatter_gives_each_rank_its_part(api: Api) -> None:
    every = list(range(api.size))
    blocks = [api.full(rank, 2) for rank in every]
    part = api.full(-1, 2)
    api.dist.reduce_scatter(part, blocks)
    api.expect(part, *[api.rank * api.size] * 2)
    flat = api.array([float(rank) for rank in every for _ in range(2)], dtype="float32")
    api.dist.reduce_scatter_tensor(part, flat)
    api.expect(part, *[api.rank * api.size] * 2)


@_check
def all_to_all_exchanges_even_and_uneven_parts(api: Api) -> None:
    mine = api.array([float(10 * api.rank + peer) for peer in range(api.size)], dtype="float32")
    found = api.full(-1, api.size)
    api.dist.all_to_all_single(found, mine)
    api.expect(found, *[10 * peer + api.rank for peer in range(api.size)])
    sends = [peer + 1 for peer in range(api.size)]
    takes = [api.rank + 1] * api.size
    uneven = api.full(-1, sum(takes))
    api.dist.all_to_all_single(uneven, api.full(api.rank, sum(sends)), takes, sends)
    api.expect(uneven, *[peer for peer in range(api.size) for _ in range(api.rank + 1)])


@_check
def async_ops_end_in_any_order_of_waits(api: Api) -> None:
    arrays = [api.full(api.rank + n) for n in range(4)]
    works = [api.dist.all_reduce(array, async_op=True) for array in arrays]
    for work in reversed(works):
        work.wait()
    base = sum(range(api.size))
    for n, array in enumerate(arrays):
        api.expect(array, *[base + n * api.size] * 3)


@_check
def messages_keep_their_tags_and_order(api: Api) -> None:
    after, before = (api.rank + 1) % api.size, (api.rank - 1) % api.size
    if api.size == 1:
        return
    first, second = api.full(-1), api.full(-1)
    works = [
        api.dist.isend(api.full(api.rank), after, tag=1),
        api.dist.isend(api.full(api.rank + 100), after, tag=2),
        api.dist.irecv(second, before, tag=2),
        api.dist.irecv(first, before, tag=1),
    ]
    for work in works:
        work.wait()
    api.expect(first, *[before] * 3)
    api.expect(second, *[before + 100] * 3)


@_check
def a_batch_of_messages_goes_round(api: Api) -> None:
    if api.size == 1:
        return
    found = api.full(-1)
    after, before = (api.rank + 1) % api.size, (api.rank - 1) % api.size
    ops = [
        api.dist.P2POp(api.dist.isend, api.full(api.rank), after),
        api.dist.P2POp(api.dist.irecv, found, before),
    ]
    for work in api.dist.batch_isend_irecv(ops):
        work.wait()
    api.expect(found, *[before] * 3)


@_check
def rank_0_receives_from_whoever_sends(api: Api) -> None:
    if api.rank:
        api.dist.send(api.full(api.rank), 0, tag=5)
        return
    seen = set()
    for _ in range(api.size - 1):
        x = api.full(-1)
        source = api.dist.recv(x, tag=5)
        api.expect(x, *[source] * 3)
        seen.add(source)
    assert seen == set(range(1, api.size))


@_check
def objects_travel_all_ways(api: Api) -> None:
    everyone: list[Any] = [None] * api.size
    api.dist.all_gather_object(everyone, {"rank": api.rank})
    assert everyone == [{"rank": rank} for rank in range(api.size)]
    words = [f"of {api.rank}", api.rank]
    api.dist.broadcast_object_list(words, src=0)
    assert words == ["of 0", 0]


@_check
def subgroups_have_ranks_of_their_own(api: Api) -> None:
    if api.size == 1:
        return
    pair = api.dist.new_group([0, 1])
    if api.rank < 2:
        x = api.full(api.rank + 1)
        api.dist.all_reduce(x, group=pair)
        api.expect(x, 3, 3, 3)
        assert api.dist.get_world_size(pair) == 2
        assert api.dist.get_rank(pair) == api.rank
    api.dist.barrier()


@_check
def empty_and_single_elements_are_arrays_too(api: Api) -> None:
    one = api.full(1, 1)
    api.dist.all_reduce(one)
    api.expect(one, api.size)
    none = api.full(1, 0)
    api.dist.broadcast(none, src=0)
    assert api.values(none) == []


@_check
def barriers_let_all_ranks_go(api: Api) -> None:
    api.dist.barrier()
    work = api.dist.barrier(async_op=True)
    work.wait()
