"""Forward passes since the last backward pass: which of their outputs it has reached.

An output that is gone and was not reached was thrown away. Where all outputs of a forward pass were,
and it was called from the very lines that the one with the backward pass was called from, a step of the
program has left its backward pass out. An output that is still there may get one.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from distdbg.ops.sites import UNKNOWN, skipped_folders
from distdbg.runtime.parallel.reducer.counts import Counts


class OutputLifetime:
    """Autograd owns it with an output, so it is gone when that is."""

    __slots__ = ("__weakref__",)


@dataclass(slots=True)
class Output:
    """A tensor that a model has returned."""

    alive: weakref.ref[OutputLifetime]
    #: Whether a backward pass has reached it.
    is_reached: bool = False


@dataclass(slots=True)
class ForwardPass:
    """Called from these lines."""

    #: Lines of all frames: the same for two calls from the same lines.
    lines: tuple[int, ...]
    #: The program's own: its code, and the place in it.
    site: tuple[CodeType, int] | None
    is_training: bool
    outputs: list[Output] = field(default_factory=list)

    @property
    def is_reached(self) -> bool:
        """Whether a backward pass has reached it."""
        return any(output.is_reached for output in self.outputs)

    @property
    def is_thrown_away(self) -> bool:
        """Whether no backward pass has, and none can."""
        return bool(self.outputs) and not any(
            output.is_reached or output.alive() is not None for output in self.outputs
        )


class Forwards:
    """The forward passes with synchronization of one model."""

    def __init__(self) -> None:
        self._passes: list[ForwardPass] = []
        self._has_gone_backward = False
        #: Those that were thrown away, by their lines: a program without backward passes may make many.
        self._thrown_away: dict[tuple[int, ...], int] = {}
        #: The same of those in evaluation mode: no backward pass is missed there.
        self._evaluated = 0

    def begin(self, is_training: bool) -> None:
        """The model is called."""
        if self._has_gone_backward:
            self._passes.clear()
            self._thrown_away.clear()
            self._evaluated = 0
            self._has_gone_backward = False
        self._settle()
        lines, site = _lines(sys._getframe(2))
        self._passes.append(ForwardPass(lines, site, is_training))

    def follow(self, tensor: Any, on_output: Callable[[], None]) -> None:
        """Note when a backward pass reaches an output of this call, and call `on_output`."""
        alive = OutputLifetime()
        output = Output(weakref.ref(alive))
        self._passes[-1].outputs.append(output)

        def reach(gradient: Any, alive: OutputLifetime = alive) -> None:
            output.is_reached = True
            on_output()

        tensor.register_hook(reach)

    def _settle(self) -> None:
        """Count what was thrown away, and forget it."""
        rest = []
        for each in self._passes:
            if not each.is_thrown_away:
                rest.append(each)
            elif each.is_training:
                self._thrown_away[each.lines] = self._thrown_away.get(each.lines, 0) + 1
            else:
                self._evaluated += 1
        self._passes = rest

    def go_backward(self, counts: Counts) -> None:
        """A backward pass begins: count the calls from its lines that were thrown away."""
        self._settle()
        self._has_gone_backward = True
        if counts.forwards:
            counts.forwards = max(1, counts.forwards - self._evaluated)
            self._evaluated = 0  # it may be called again, as after torch.autograd.grad
        counts.thrown_away, counts.thrown_site = 0, ""
        for each in self._passes:
            thrown_away = self._thrown_away.get(each.lines, 0) if each.is_reached else 0
            if thrown_away:
                counts.thrown_away, counts.thrown_site = thrown_away, _text(each.site)

    @property
    def awaits_more(self) -> bool:
        """Whether there is an output that no backward pass has reached, and one still can."""
        return any(
            not output.is_reached and output.alive() is not None
            for each in self._passes
            for output in each.outputs
        )


def _lines(frame: FrameType | None) -> tuple[tuple[int, ...], tuple[CodeType, int] | None]:
    """What is the same for two calls from the same lines; and the innermost of the program's own."""
    found: list[int] = []
    site = None
    folders = skipped_folders()
    while frame is not None:
        code = frame.f_code
        found += (id(code), frame.f_lasti)
        if site is None and not code.co_filename.startswith(folders):
            site = code, frame.f_lasti
        frame = frame.f_back
    return tuple(found), site


def _text(site: tuple[CodeType, int] | None) -> str:
    """'/home/me/train.py:88 (step)'."""
    if site is None:
        return UNKNOWN
    code, at = site
    numbers = [line for begin, end, line in code.co_lines() if begin <= at < end]
    return f"{code.co_filename}:{numbers[0] if numbers else '?'} ({code.co_qualname})"
