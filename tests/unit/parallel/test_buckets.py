"""Which parameters share a bucket; pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.errors import UsageError
from distdbg.runtime.parallel.gradient_reducer import leaves, rebuild
from distdbg.runtime.parallel.reducer.buckets import Capacity, assign
from distdbg.runtime.parallel.reducer.measures import Measures, PassTimes
from distdbg.runtime.parallel.reducer.parameters import Parameter

DTYPES = ("float16", "float32", "float64")


def parameters(*sizes: int, dtype: str = "float32") -> list[Parameter]:
    return [Parameter(f"p{at}", dtype, (size,)) for at, size in enumerate(sizes)]


def test_a_bucket_is_full_when_it_has_its_limit_and_the_next_limit_follows() -> None:
    assert assign(parameters(1, 1, 1, 1, 1, 1), range(6), (4, 8)) == ((0,), (1, 2), (3, 4), (5,))


def test_a_bucket_has_one_dtype_and_the_order_is_that_in_which_they_are_full() -> None:
    mixed = [
        Parameter("a", "float32", (2,)),
        Parameter("b", "float16", (1,)),
        Parameter("c", "float32", (2,)),
        Parameter("d", "float16", ()),
    ]
    assert assign(mixed, range(4), (16,)) == ((0, 2), (1, 3))


def test_nothing_is_cut_before_the_first_pass_unless_parameters_may_lack_a_gradient() -> None:
    sizes = parameters(1 << 18, 1 << 18, 1 << 18)
    capacity = Capacity.of(None)
    assert capacity.first_buckets(sizes, may_lack=False) == ((0, 1, 2),)
    assert capacity.first_buckets(sizes, may_lack=True) == ((1, 2), (0,))
    assert capacity.buckets(sizes, [2, 1, 0]) == ((2,), (1, 0))
    assert Capacity.of(1).first_buckets(sizes, may_lack=True) == ((2,), (1,), (0,))
    assert Capacity.of(None, [2, 1]).first_buckets(sizes, may_lack=False) == ((2,), (0, 1))


def test_the_size_of_a_bucket_is_above_zero() -> None:
    with pytest.raises(UsageError, match="more than 0 MiB"):
        Capacity.of(0)
    with pytest.raises(UsageError, match="more than 0 MiB"):
        Capacity.of(None, [1, -1])


@given(
    st.lists(st.tuples(st.integers(0, 50), st.sampled_from(DTYPES)), min_size=1, max_size=30),
    st.lists(st.integers(1, 200), min_size=1, max_size=3),
    st.randoms(),
)
def test_each_parameter_is_in_one_bucket_of_its_dtype(
    shapes: list[tuple[int, str]], limits: list[int], chance: object
) -> None:
    given_ = [Parameter(str(at), dtype, (size,)) for at, (size, dtype) in enumerate(shapes)]
    order = list(range(len(given_)))
    chance.shuffle(order)  # type: ignore[attr-defined]  # random.Random
    found = assign(given_, order, limits)
    assert sorted(i for bucket in found for i in bucket) == sorted(order)
    for bucket in found:
        assert len({given_[i].dtype for i in bucket}) == 1
        assert sum(given_[i].nbytes for i in bucket[:-1]) < max(limits)


def test_moments_that_are_not_known_have_no_length() -> None:
    whole = PassTimes(10, 30, 70, 40, 90)
    assert (whole.forward_ns, whole.backward_ns, whole.comm_ns, whole.overlap_ns) == (
        20,
        40,
        50,
        30,
    )
    assert PassTimes(comm_begin_ns=5).comm_ns == 0
    measures = Measures()
    assert measures.facts() == {}
    for _ in range(10):
        measures.add(whole)
    assert measures.is_time_to_say()
    assert measures.facts()["avg_backward_comm_time"] == 50
    assert "0.00 ms of it beside" in measures.line()


def test_leaves_have_the_names_of_their_paths_and_a_tree_is_rebuilt() -> None:
    tree = {"layers": [{"w": 1, "b": 2}, {"w": 3}], "scale": 4, "pair": (5, None)}
    found = dict(leaves(tree))
    assert list(found) == [
        "layers[0].w",
        "layers[0].b",
        "layers[1].w",
        "scale",
        "pair[0]",
        "pair[1]",
    ]
    values = {name: value and value * 10 for name, value in found.items() if name != "scale"}
    assert rebuild(tree, values) == {
        "layers": [{"w": 10, "b": 20}, {"w": 30}],
        "scale": None,
        "pair": (50, None),
    }
    assert dict(leaves(7)) == {"": 7}
