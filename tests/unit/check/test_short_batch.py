"""When a smaller array is taken for a shorter last batch."""

from __future__ import annotations

import json

import pytest

from distdbg.check.explain import describe, explain_mismatch
from distdbg.check.short_batch import is_short_batch


@pytest.mark.parametrize(
    ("differs", "usual", "seq", "is_one"),
    [
        ([7, 64], [10, 64], 41, True),
        ([7, 64], [10, 64], 2, False),  # the first arrays of a program
        ([10, 65], [10, 64], 41, False),
        ([11, 64], [10, 64], 41, False),
        ([7], [10, 64], 41, False),
        ([], [], 41, False),
        ("7", "8", 41, False),
        (None, [8], 41, False),
    ],
)
def test_only_a_smaller_first_extent_after_many_ops_is_a_shorter_batch(
    differs: object, usual: object, seq: int, is_one: bool
) -> None:
    assert is_short_batch(differs, usual, seq) is is_one


@pytest.mark.parametrize(
    ("size", "seq", "is_reported"), [(7, 41, True), (7, 2, False), (9, 41, False)]
)
def test_the_hint_of_an_error_names_a_shorter_batch_only_where_it_may_be_one(
    size: int, seq: int, is_reported: bool
) -> None:
    sizes = [8, 8, size]
    words = [
        json.dumps(json.loads(describe({"kind": "all_reduce", "shape": [n]}, "all_reduce") + b"}"))
        for n in sizes
    ]
    error = explain_mismatch(
        [text.encode() for text in words],
        group="world",
        seq=seq,
        global_ranks=[0, 1, 2],
        this_rank=0,
    )
    assert ("shorter last batch" in str(error.hint)) is is_reported
