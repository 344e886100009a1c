"""Gradients that a further backward pass has to bring before an optimizer takes them: torch calls it then."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch.optim.optimizer import register_optimizer_step_pre_hook

from distdbg.runtime.parallel.reducer.reducer import Reducer


class OptimizerWatch:
    """While gradients are owed: UsageError, on all ranks, where an optimizer of their parameters steps."""

    def __init__(self, reducer: Reducer, parameters: Sequence[Any]) -> None:
        self._reducer = reducer
        self._parameters = parameters
        self._handle: Any = None

    def follow(self) -> None:
        """Watch as long as something is owed."""
        if not self._reducer.partial.owed:
            self._end()
        elif self._handle is None:
            this = weakref.ref(self)

            def before_step(optimizer: Any, *given: Any) -> None:
                watch = this()
                if watch is not None:
                    watch.check(optimizer)

            self._handle = register_optimizer_step_pre_hook(before_step)

    def check(self, optimizer: Any) -> None:
        """It is about to step."""
        owed = {id(self._parameters[index]) for index in self._reducer.partial.owed}
        if any(id(one) in owed for group in optimizer.param_groups for one in group["params"]):
            self._end()
            self._reducer.check_owed()

    def _end(self) -> None:
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()
