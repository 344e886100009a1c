"""named: the ops of a block get a name, in records and messages, as with `record_comm`.

The name belongs to the rank's record, not to a thread: torch's wrappers start their ops one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.native import Recorder
from distdbg.runtime.process.world import observed


class named:
    """`with named("DDP bucket 3 of layer4"):`; nothing where no record is kept."""

    __slots__ = ("_before", "_name", "_recorder")

    def __init__(self, name: str) -> None:
        self._name = name
        self._before = ""
        self._recorder: Recorder | None = None

    def __enter__(self) -> None:
        self._recorder = observed().recorder
        if self._recorder is not None:
            self._before = self._recorder.comm
            self._recorder.set_comm(self._name)

    def __exit__(self, *_: object) -> None:
        if self._recorder is not None:
            self._recorder.set_comm(self._before)


def naming(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function, with all its ops named so."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with named(name):
            return function(*args, **kwargs)

    return call
