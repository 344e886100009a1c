"""What autograd calls during a backward pass: at its begin, for each gradient, and at its end.

Nothing here keeps the model alive but the pass that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

_autograd: Any = torch.autograd
engine = _autograd.Variable._execution_engine
#: Buffers that a backward pass needs may be written to: torch's DDP does.
preserve_versions = _autograd._unsafe_preserve_version_counter
#: The number of the backward pass that this thread runs; -1: none.
current_backward: Any = torch._C._current_graph_task_id


class HasBackward(Protocol):
    """The module whose backward pass runs (module.py)."""

    def begin_backward(self) -> None:
        """Before all gradients."""
        ...

    def take_gradient(self, index: int, parameter: Any) -> None:
        """A parameter has its gradient."""
        ...

    def end_backward(self) -> None:
        """After all gradients."""
        ...


class BackwardPass:
    """Called at the end of one backward pass, unless that raises."""

    def __init__(self, ddp: HasBackward) -> None:
        self._ddp = ddp

    def __call__(self) -> None:
        """End it."""
        self._ddp.end_backward()


def gradient_hook(this: Callable[[], HasBackward | None], index: int) -> Any:
    """Called when a parameter has its gradient."""

    def on_gradient(parameter: Any) -> None:
        ddp = this()
        if ddp is not None:
            ddp.take_gradient(index, parameter)

    return on_gradient


def backward_hook(this: Callable[[], HasBackward | None]) -> Any:
    """Called when the gradient of an output is there: before all others."""

    def on_output() -> None:
        ddp = this()
        if ddp is not None:
            ddp.begin_backward()

    return on_output
