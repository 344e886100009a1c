"""Which function of torch.distributed an op comes from, by the frames above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from distdbg.native import NotedOption
from distdbg.torch_bridge.tap.callers import is_async_call, is_blocking_recv
from distdbg.torch_bridge.tap.methods import _async_of

#: What looks like torch's module: its functions call the method of a group, or each other.
FUNCTIONS = """
def all_reduce(method, async_op=False):
    return wrapped(method)

def wrapped(method):
    return method()

def recv(method):
    return irecv(method)

def irecv(method):
    return method()
"""


@pytest.fixture
def functions() -> dict[str, Any]:
    module: dict[str, Any] = {"__name__": "torch.distributed.distributed_c10d"}
    exec(FUNCTIONS, module)
    return module


def test_an_op_is_asynchronous_as_its_function_was_called(functions: dict[str, Any]) -> None:
    all_reduce: Callable[..., bool] = functions["all_reduce"]
    assert not all_reduce(is_async_call)
    assert all_reduce(is_async_call, async_op=True)
    assert is_async_call()  # C++ has called it


def test_options_that_do_not_tell_are_asked_no_more(functions: dict[str, Any]) -> None:
    class Options:
        """As of torch 2.6."""

    class TellingOptions:
        asyncOp = property(lambda self: True)

    asked, reported = _async_of(Options), _async_of(TellingOptions)
    assert isinstance(
        reported, NotedOption
    )  # is read in native code: tests/native/test_noted_option.py
    assert not functions["all_reduce"](lambda: asked(Options()))
    assert functions["all_reduce"](lambda: asked(Options()), async_op=True)


def test_recv_is_told_from_irecv(functions: dict[str, Any]) -> None:
    assert functions["recv"](is_blocking_recv)
    assert not functions["irecv"](is_blocking_recv)


def test_a_mesh_takes_its_arguments_by_any_name() -> None:
    from distdbg.torch_bridge.training.patching import patch_mesh

    class Mesh:
        def __init__(self, device_type: str, mesh: list[int]) -> None:
            self.mesh, self.mesh_dim_names = mesh, None

    patch_mesh(Mesh)
    assert Mesh(device_type="cpu", mesh=[0, 1]).mesh == [0, 1]
