from __future__ import annotations

import datetime
import os
import pickle
import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.diagnose.load.restricted_pickle import read_plain
from distdbg.errors import RecordError

PLAIN: dict[str, Any] = {
    "version": "2.10",
    "numbers": [0, 255, 70_000, -1, 2**40, -(2**70), 1.5, True, False, None],
    "entries": [{"a": ("0", "default_pg"), "b": [[4], []]}, {"a": ("0", "default_pg"), "b": ()}],
    "text": "é" * 300,
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values_are_read(protocol: int) -> None:
    assert read_plain(pickle.dumps(PLAIN, protocol), "x") == PLAIN


class Runs:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Runs(), "posix.system"),
        ([{"entries": Runs()}], "posix.system"),
        (datetime.datetime(2026, 1, 1), "datetime.datetime"),
        (RuntimeError("x"), "RuntimeError"),
    ],
)
def test_what_wants_a_global_is_refused_by_its_name(
    value: object, name: str, protocol: int
) -> None:
    data = pickle.dumps(value, protocol)
    with pytest.raises(RecordError, match=r"tries to load|not a pickle of plain values") as caught:
        read_plain(data, "dump_0")
    if protocol >= 2:
        assert name in caught.value.what
    assert caught.value.path == "dump_0"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b".",
        b"\x80\x02",
        b"\x80\x02}",
        b"\x80\x02X\xff\xff\xff\xff.",  # text of 4 GB
        b"\x80\x02\x8d" + b"\xff" * 8 + b".",  # of more than there is
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of 2 billion
        b"\x80\x02]r\x00\x00\x00\x40.",
        b"\x80\x04\x95" + b"\xff" * 8 + b"}.",
        b"\x80\x02h\x05.",  # what was never put
        b"\x80\x02\x8a\xff\x01.",
        b"\x80\x02\x8b\xff\xff\xff\x7f\x01.",
        b"(lp0\nI1\na.",
        b"\x80\x02\x82\x01.",
        b"\x80\x02K\x01Q.",
        b"\x80\x02Pabc\n.",
        b"\x80\x02\x97.",
        b"\x80\x02]K\x01]s.",
    ],
)
def test_damage_and_claims_are_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        read_plain(data, "x")


def test_depth_does_no_harm() -> None:
    data = b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b"."
    value = read_plain(data, "x")
    assert isinstance(value, list)


@given(st.binary(max_size=200))
def test_any_bytes_are_plain_or_refused(data: bytes) -> None:
    with suppress(RecordError):
        read_plain(b"\x80\x02" + data, "x")


def test_no_change_of_a_pickle_does_more_than_be_refused() -> None:
    draw = random.Random(7)
    good = pickle.dumps(PLAIN, 2)
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        with suppress(RecordError):
            read_plain(bytes(data), "x")
