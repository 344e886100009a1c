"""Spans of the phases of a step: forward, backward, optimizer; and a mark at the end of each step.

A step is an optimizer's, after at least one backward pass; the first one has the number 1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.record.known_marks import BACKWARD, OPTIMIZER, STEP
from distdbg.runtime.api.marks import Begun, begin_span, end_span, mark


class TrainingSteps:
    """How many this process has done, and in which phase it is."""

    def __init__(self) -> None:
        self.done = 0
        #: How many backward passes and times between them have begun: odd in a backward pass.
        self.phase = 0
        self._has_gradients = False
        self._depth = 0
        #: How many have begun, those within others included, and the span of the first.
        self._optimizers = 0
        self._optimizing: Begun | None = None
        self._module_count = 0
        #: Told of each pass that accumulates gradients: before it, and after it, whether it went well.
        self.before_backward: list[Callable[[], None]] = []
        self.after_backward: list[Callable[[bool], None]] = []
        #: Called before a pass when modules were imported since the last one.
        self.on_imports: list[Callable[[], None]] = []

    @property
    def current(self) -> int:
        """The number of the step that is not done."""
        return self.done + 1

    def wrap_backward(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """torch's function that runs a backward pass, as a span."""

        @wraps(real)
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            if self._depth or not kwargs.get("accumulate_grad", True):
                return real(*args, **kwargs)  # a pass within a pass, or torch.autograd.grad
            count = len(sys.modules)
            if count != self._module_count:
                self._module_count = count
                for look in self.on_imports:
                    look()
            for before in self.before_backward:
                before()
            self._optimizers = 0  # of a step that raised
            self._depth, is_well = 1, False
            self.phase += 1
            begun = begin_span(BACKWARD)
            try:
                result = real(*args, **kwargs)
                is_well = self._has_gradients = True
            finally:
                end_span(begun)
                self._depth = 0
                self.phase += 1
                for after in self.after_backward:
                    after(is_well)
            return result

        return _engine_run_backward

    def begin_optimizer(self, *_: Any) -> None:
        """An optimizer begins; one that calls another one counts as one."""
        self._optimizers += 1
        if self._optimizers == 1:
            self._optimizing = begin_span(OPTIMIZER)

    def end_optimizer(self, *_: Any) -> None:
        """It has ended."""
        if not self._optimizers:
            return
        self._optimizers -= 1
        if self._optimizers:
            return
        end_span(self._optimizing)
        if self._has_gradients:
            self._has_gradients = False
            self.done += 1
            mark(STEP, self.done)
