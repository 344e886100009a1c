"""A Future as a torch.futures.Future, for whoever has imported torch: its C++ takes no other.

Like arrays/torch_arrays.py this never imports torch.
"""

from __future__ import annotations

import sys
from copy import copy
from functools import cache
from typing import Any, NoReturn

from distdbg.runtime.handles.future import Future


def for_torch(future: Future[Any]) -> Any:
    """The same future as torch's type; itself as long as nobody imported torch."""
    futures = getattr(sys.modules.get("torch"), "futures", None)
    if futures is None or not hasattr(futures, "Future"):
        return future
    theirs = _class_of(futures.Future)()
    theirs.say_wait = future.say_wait

    def carry(ended: Future[Any]) -> None:
        try:
            value = ended.value()
        except Exception as error:  # noqa: BLE001 - it is raised where the future is waited for
            theirs._set_unwrap_func(_raise_copy)
            theirs.set_result(_copied(error))
        else:
            theirs.set_result(value)

    future.add_done_callback(carry)
    return theirs


def _copied(error: Exception) -> Exception:
    """For C++ to hold: an error that was raised holds frames, and they the future."""
    made = copy(error)
    made.__cause__ = error.__cause__
    return made


def _raise_copy(error: Exception) -> NoReturn:
    raise _copied(error)


@cache
def _class_of(base: Any) -> Any:
    class TorchFuture(base):  # type: ignore[misc]  # torch's class is not known here
        """torch.futures.Future; a wait for it is in the record."""

        def wait(self) -> Any:
            if self.done():
                return super().wait()
            with self.say_wait():
                return super().wait()

    return TorchFuture
