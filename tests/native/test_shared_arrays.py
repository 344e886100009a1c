"""What one process sees of its shared arrays: what they are made like, their limit, and who is told of it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import distdbg as dist
from distdbg.errors import ConfigError, DistBackendError, UsageError
from distdbg.native import is_shared
from distdbg.runtime.api import shared_arrays
from distdbg.runtime.arrays.memory_room import MemoryRoom, cgroup_folders, parse_table


def has_memory(x: Any) -> bool:
    return is_shared(x.ctypes.data, x.nbytes)


def shapes_and_dtypes() -> bool:
    x = dist.empty((3, 4), np.float32)
    assert (x.shape, x.dtype, x.flags.writeable, x.flags.c_contiguous) == (
        (3, 4),
        np.float32,
        True,
        True,
    )
    assert dist.zeros(5).dtype == np.float64
    assert dist.zeros((), np.int8).shape == ()
    assert dist.zeros([2, np.int64(3)], "uint8").shape == (2, 3)
    assert not dist.zeros(70_000).any()
    brain = dist.zeros(7, ml_dtypes.bfloat16)
    assert brain.dtype == ml_dtypes.bfloat16
    like = dist.empty(like=np.ones((2, 5), np.int16))
    assert (like.shape, like.dtype) == ((2, 5), np.int16)
    assert dist.empty(3, like=like).shape == (3,)
    assert dist.empty(like=like, dtype=np.float64).dtype == np.float64
    assert all(map(has_memory, (x, like, x[1:, ::2])))
    assert not any(map(has_memory, (np.ones(3), x.copy())))
    assert dist.empty((0, 3)).shape == (0, 3)
    return True


def with_the_last_view() -> bool:
    x = dist.empty(10_000, np.float32)
    view = x[5:].reshape(5, -1).view(np.int32)
    del x
    gc.collect()
    assert dist.shared_arrays().count == 1
    view[:] = 3
    del view
    gc.collect()
    facts = dist.shared_arrays()
    assert (facts.count, facts.nbytes, facts.lines) == (0, 0, {})
    assert facts.most_nbytes == 40_960
    return True


def above_the_limit() -> list[Any]:
    os.environ["DISTDBG_SHARED_NBYTES"] = "100000"
    kept = []
    for _ in range(3):
        kept.append(dist.empty(2048, np.float64))
    kept.append(dist.zeros(10, np.uint8))
    with pytest.raises(UsageError) as caught:
        dist.empty(100_000, np.uint8)
    del kept
    dist.empty(90_000, np.uint8)
    error = caught.value
    return [error.what, list(error.details), error.hint]


def wrong_arguments() -> list[str]:
    said = []
    for arguments in ((), ("3",), ((2, -1),), (2.5,), (3, "U4"), (3, object), (3, "no such")):
        with pytest.raises(UsageError) as caught:
            dist.empty(*arguments)
        said.append(caught.value.what)
    return said


def on_a_full_machine() -> list[Any]:
    # In a process of its own: nothing has to be put back. mypy refuses to replace functions.
    # Of another type: one that takes no arguments is enough here.
    shared_arrays.read_memory = lambda: MemoryRoom(1 << 40, 5 << 20, "its cgroup")  # type: ignore[assignment]
    dist.empty(4 << 20, np.uint8)
    with pytest.raises(DistBackendError) as caught:
        dist.zeros(6 << 20, np.uint8)
    return [caught.value.what, dist.shared_arrays().count]


def with_torch() -> bool:
    import torch

    x = torch.from_numpy(dist.zeros((2, 3), np.float32))
    assert is_shared(x.data_ptr(), 24)
    like = dist.zeros(like=torch.ones(3, 4, dtype=torch.bfloat16))
    assert (tuple(like.shape), like.dtype) == ((3, 4), torch.bfloat16)
    assert is_shared(like.data_ptr(), 24)
    part = like[1]
    del like
    gc.collect()
    assert dist.shared_arrays().count == 2
    del part, x
    gc.collect()
    assert dist.shared_arrays().count == 0
    assert dist.empty(4, torch.float16).dtype == np.float16
    return True


# The memory is there until the process ends: each test has one of its own.
@pytest.mark.parametrize("check", [shapes_and_dtypes, with_the_last_view])
def test_arrays_are_like_others(ranks: Callable[..., list[Any]], check: Callable[[], bool]) -> None:
    assert ranks(check, 1) == [True]


def test_torch_tensors_use_the_same_memory(ranks: Callable[..., list[Any]]) -> None:
    pytest.importorskip("torch")
    assert ranks(with_torch, 1) == [True]


def test_the_limit_is_an_error_that_names_lines(ranks: Callable[..., list[Any]]) -> None:
    [[what, details, hint]] = ranks(above_the_limit, 1)
    assert what == (
        "distdbg.empty of 97.7 KiB: this rank has 52.0 KiB of shared arrays, of 97.7 KiB that it may have"
    )
    name = Path(__file__).name
    first, second = details
    assert first.startswith(f"distdbg.empty at {name}:")
    assert first.endswith(" (above_the_limit), 3 times, 48.0 KiB")
    assert second.startswith(f"distdbg.zeros at {name}:")
    assert second.endswith(" (above_the_limit), 4.0 KiB")
    assert hint == "drop arrays that are not needed any more, or set DISTDBG_SHARED_NBYTES"


def test_a_full_machine_is_an_error_before_it_is_a_kill(ranks: Callable[..., list[Any]]) -> None:
    assert ranks(on_a_full_machine, 1) == [
        ["distdbg.zeros of 6.0 MiB: its cgroup has 5.0 MiB free", 0]
    ]


def test_wrong_arguments_are_said(ranks: Callable[..., list[Any]]) -> None:
    [said] = ranks(wrong_arguments, 1)
    assert said[:4] == [
        "distdbg.empty: a shape is needed, or an array that it is like",
        "distdbg.empty: the shape is '3'; expected an int or a sequence of ints",
        "distdbg.empty: the shape is (2, -1); no extent can be below 0",
        "distdbg.empty: the shape is 2.5; expected an int or a sequence of ints",
    ]
    assert all("cannot be communicated" in each for each in said[4:])


@pytest.mark.parametrize(
    ("limit", "expected"), [("-1", "a whole number of at least 0"), (str(2**64), "at most")]
)
def test_a_limit_that_cannot_be_is_refused(
    limit: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTDBG_SHARED_NBYTES", limit)
    with pytest.raises(ConfigError, match=f"DISTDBG_SHARED_NBYTES=.*expected {expected}"):
        dist.empty(3)


def test_cgroups_are_found_where_both_versions_have_them() -> None:
    folders = list(cgroup_folders("4:memory:/a/b\n3:cpu:/c\n0::/d\n"))
    assert [str(folder) for folder in folders] == [
        "/sys/fs/cgroup/memory/a/b",
        "/sys/fs/cgroup/memory/a",
        "/sys/fs/cgroup/memory",
        "/sys/fs/cgroup/d",
        "/sys/fs/cgroup",
    ]
    assert list(cgroup_folders("")) == []
    assert parse_table("MemTotal:   12 kB\nactive_file 7\nodd\n\n") == {
        "MemTotal": 12,
        "active_file": 7,
    }
