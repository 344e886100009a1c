"""Marks and spans: a program's own words in its record, between the ops.

    dist.mark("step", 12)
    with dist.span("forward"):
        ...

They cost about as much as the record of an op and are nothing before init_process_group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from distdbg.errors import UsageError
from distdbg.native import Form, Recorder
from distdbg.record.format import EventType
from distdbg.record.forms import write_mark
from distdbg.runtime.process.world import World, observed

#: A span that has begun: who writes its end, the number of its begin, its name in the record.
Begun = tuple[Recorder, int, Form]

_MARK = int(EventType.MARK)
_SPAN_BEGIN = int(EventType.SPAN_BEGIN)
_SPAN_END = int(EventType.SPAN_END)

_as_bytes = struct.Struct("<d").pack
_as_int = struct.Struct("<q").unpack

#: What begins and ends each span beside the record, for a profiler; None: no profiler wants that.
beside: tuple[Callable[[str], object], Callable[[], object]] | None = None

#: Names of which the Form is kept; a program that makes up names without end must not grow.
_MAX_NAMES = 1024


def mark(name: str, value: float | None = None) -> None:
    """Write a name, and a number if one is given, into this rank's record."""
    world = observed()
    recorder = world.recorder
    if recorder is not None:
        form = world.mark_forms.get(name) or _make_form(world, name)
        recorder.note(_MARK, 0, 0, _bits(name, value), form, 0)


class span:
    """Write the beginning and the end of a block into this rank's record: `with dist.span("x"):`.

    A class, not a generator: that would cost more than the record, and the call site would be a line
    of contextlib.
    """

    __slots__ = ("_begin", "_form", "_name", "_recorder")

    def __init__(self, name: str) -> None:
        self._name = name
        self._recorder: Recorder | None = None

    def __enter__(self) -> None:
        world = observed()
        recorder = self._recorder = world.recorder
        if beside is not None:
            beside[0](self._name)
        if recorder is not None:
            self._form = world.mark_forms.get(self._name) or _make_form(world, self._name)
            self._begin = recorder.note(_SPAN_BEGIN, 0, 0, 0, self._form, 0)

    def __exit__(self, *_: object) -> None:
        if beside is not None:
            beside[1]()
        if self._recorder is not None:
            self._recorder.note(_SPAN_END, 0, 0, self._begin, self._form, 0)


def begin_span(name: str) -> Begun | None:
    """What `with span(name)` does at first, for who begins one in each step: with one call less."""
    world = observed()
    if beside is not None:
        beside[0](name)
    recorder = world.recorder
    if recorder is None:
        return None
    form = world.mark_forms.get(name) or _make_form(world, name)
    return recorder, recorder.note(_SPAN_BEGIN, 0, 0, 0, form, 0), form


def end_span(begun: Begun | None) -> None:
    """What it does at last."""
    if beside is not None:
        beside[1]()
    if begun is not None:
        recorder, number, form = begun
        recorder.note(_SPAN_END, 0, 0, number, form, 0)


def _make_form(world: World, name: str) -> Form:
    if not isinstance(name, str):
        raise UsageError(f"a mark's name is a str, not {type(name).__name__}")
    if len(world.mark_forms) >= _MAX_NAMES:
        world.mark_forms.clear()
    form = world.mark_forms[name] = Form(write_mark(name), name, 0, 0, 0)
    return form


def _bits(name: str, value: float | None) -> int:
    """The number as the record holds it: the bits of a float64, NaN for none."""
    try:
        number = float("nan") if value is None else float(value)
    except (TypeError, ValueError, OverflowError):
        raise UsageError(
            f"mark {name!r}: the value must be a number that fits a float, not {type(value).__name__}"
        ) from None
    bits: int = _as_int(_as_bytes(number))[0]
    return bits
