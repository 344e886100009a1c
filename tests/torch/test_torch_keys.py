"""What a thread excludes in torch's dispatcher, set and read past torch's Python."""

from __future__ import annotations

import threading

import pytest

from distdbg.native import TorchKeys

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode  # noqa: E402 - it imports torch
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

KEY = torch._C.DispatchKey.ADInplaceOrView
exclude = torch._C._dispatch_tls_set_dispatch_key_excluded


def test_it_asks_this_torch_past_its_python() -> None:
    assert TorchKeys(KEY).is_direct


def test_to_make_one_changes_nothing() -> None:
    is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
    TorchKeys(KEY)
    assert not is_excluded(KEY)
    exclude(KEY, True)
    try:
        assert TorchKeys(KEY).is_excluded
        assert is_excluded(KEY)
    finally:
        exclude(KEY, False)


def test_it_sees_what_this_thread_excludes() -> None:
    keys = TorchKeys(KEY)
    assert not keys.is_excluded
    exclude(KEY, True)
    try:
        assert keys.is_excluded
        assert keys.are_in_use
        seen: list[bool] = []
        other = threading.Thread(target=lambda: seen.append(keys.is_excluded))
        other.start()
        other.join()
        assert seen == [False]
    finally:
        exclude(KEY, False)
    assert not keys.are_in_use


def test_it_sees_modes_that_look_at_ops() -> None:
    keys = TorchKeys(KEY)
    assert not keys.are_traced
    with TorchDispatchMode():
        assert keys.are_traced
        assert keys.are_in_use
    with TorchFunctionMode():
        assert not keys.are_traced
    assert not keys.are_traced
