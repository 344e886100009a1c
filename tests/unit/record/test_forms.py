from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.record.forms import (
    MAX_FORM_NBYTES,
    Form,
    Listing,
    hash_list,
    read_form,
    to_ranges,
    write_form,
    write_mark,
)

EXAMPLE: dict[str, Any] = {
    "name": "all_gather_into_tensor",
    "kind": "all_gather",
    "dtype": "float32",
    "device": "cpu",
    "inputs": [(4,)],
    "outputs": [(16,)],
    "nbytes": 64,
}


def test_a_form_comes_back_as_it_was_written() -> None:
    assert read_form(
        write_form(**EXAMPLE, root=0, op="sum", sums="as gloo", part=(1, 3), input_splits=[1, 3])
    ) == Form(
        name="all_gather_into_tensor",
        kind="all_gather",
        dtype="float32",
        device="cpu",
        op="sum",
        sums="as gloo",
        root=0,
        inputs=Listing(((4,),), 1),
        outputs=Listing(((16,),), 1),
        input_splits=Listing((1, 3), 2),
        nbytes=64,
        part=(1, 3),
    )


def test_what_is_absent_takes_no_room() -> None:
    assert write_form(name="barrier", kind="barrier") == b'{"name":"barrier","kind":"barrier"}'
    assert read_form(write_form(name="barrier", kind="barrier")).root is None


def test_the_form_of_a_mark_is_its_name() -> None:
    assert read_form(write_mark("step")) == Form(name="step")


def test_a_long_list_keeps_its_head_its_length_and_a_hash_of_the_whole() -> None:
    shapes = [(4, size) for size in range(500)]
    form = read_form(write_form(**{**EXAMPLE, "outputs": shapes}))
    assert form.is_cut
    assert form.outputs.count == 500
    assert form.outputs.items == tuple(shapes[: len(form.outputs.items)])
    assert len(form.outputs.items) >= 16
    assert form.outputs.hash == hash_list(shapes)
    assert form.inputs == Listing(((4,),), 1)  # what fits is whole


def test_two_lists_with_one_head_differ_in_their_hash() -> None:
    ours = read_form(write_form(**{**EXAMPLE, "outputs": [(4,)] * 500}))
    theirs = read_form(write_form(**{**EXAMPLE, "outputs": [(4,)] * 499 + [(5,)]}))
    assert ours.outputs.items == theirs.outputs.items
    assert ours.outputs.hash != theirs.outputs.hash


words = st.text(max_size=400)
shapes = st.lists(st.lists(st.integers(0, 2**63), max_size=64), max_size=80)
splits = st.none() | st.lists(st.integers(0, 2**63), max_size=200)


@given(
    words=st.fixed_dictionaries(dict.fromkeys(("name", "kind", "dtype", "device", "op"), words)),
    rest=st.fixed_dictionaries(
        {"inputs": shapes, "outputs": shapes, "input_splits": splits, "output_splits": splits}
    ),
    root=st.none() | st.integers(0, 2**31),
    nbytes=st.integers(0, 2**63),
)
def test_any_form_fits_and_is_whole_or_says_that_it_is_cut(
    words: dict[str, str], rest: dict[str, Any], root: int | None, nbytes: int
) -> None:
    text = write_form(**words, **rest, root=root, nbytes=nbytes)
    assert len(text) <= MAX_FORM_NBYTES
    form = read_form(text)
    assert (form.root, form.nbytes) == (root, nbytes)
    for key in ("inputs", "outputs"):
        assert getattr(form, key).count == len(rest[key])
    if not form.is_cut:
        assert {key: getattr(form, key) for key in words} == words
        assert [list(shape) for shape in form.inputs.items] == rest["inputs"]
        assert list(form.output_splits.items) == (rest["output_splits"] or [])


def test_a_name_that_is_no_unicode_is_written_all_the_same() -> None:
    assert read_form(write_mark("step-\udc80")).name == "step-\udc80"


def test_integers_that_no_array_has_are_left_out() -> None:
    form = read_form(write_form(**{**EXAMPLE, "nbytes": 10**600}))
    assert form == Form(
        name="all_gath", kind="all_gath", dtype="float32", device="cpu", is_cut=True
    )


def test_keys_of_a_later_version_are_skipped() -> None:
    assert read_form(b'{"name":"x","colour":[1]}') == Form(name="x")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"name":',
        b'{"name":7}',
        b'{"root":true}',
        b'{"root":"0"}',
        b'{"nbytes":1.5}',
        b'{"inputs":7}',
        b'{"inputs":[7]}',
        b'{"inputs":[["4"]]}',
        b'{"input_splits":[[4]]}',
        b'{"part":[1]}',
        b'{"part":1}',
        b'{"outputs":{"head":1,"count":7,"hash":"x"}}',
        b'{"outputs":{"head":[[1]],"count":1,"hash":"x"}}',
        b'{"outputs":{"head":[[1]],"count":7}}',
        b"[" * 480,
    ],
)
def test_what_no_writer_wrote_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError):
        read_form(text)


@given(
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "inputs", "part", "head", "count", "cut"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_text_gives_a_form_or_a_value_error(text: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(read_form(text), Form)


@given(ranks=st.sets(st.integers(0, 4096), max_size=40))
def test_ranges_hold_the_ranks_and_no_others(ranks: set[int]) -> None:
    ranges = [range(*each) for each in to_ranges(ranks)]

    assert [rank for each in ranges for rank in each] == sorted(ranks)


@pytest.mark.parametrize(
    ("ranks", "ranges"),
    [
        (range(8, 16), [(8, 16, 1)]),
        (range(3, 4096, 8), [(3, 4092, 8)]),
        ((0, 1, 3), [(0, 2, 1), (3, 4, 1)]),
        ((), [(0, 0, 1)]),
    ],
)
def test_a_regular_pattern_of_ranks_is_one_range(ranks: Any, ranges: Any) -> None:
    assert to_ranges(ranks) == ranges
