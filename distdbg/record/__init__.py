"""The record: one file per rank with what it did and is doing. Observers read nothing else of a rank.

    rank (native/core/record.hpp writes)  ->  <run>/rank00012.ddr  ->  reader, tail, diagnosis

Reading needs the standard library only. Nothing here is imported by native code; the numbers of the
layout are in `format.py` and a test compares them with C++.

`dist.record` is this package, and also torch's decorator: a module that can be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdbg.record.decorator import ErrorHandler
    from distdbg.record.decorator import record as record


class _Package(ModuleType):
    """A package whose name is that of a function as well."""

    def __call__(
        self, fn: Callable[..., Any] | None = None, error_handler: ErrorHandler | None = None
    ) -> Callable[..., Any]:
        from distdbg.record.decorator import record as decorate

        return decorate(fn, error_handler) if fn else decorate(error_handler=error_handler)


_package = sys.modules[__name__]
_package.__class__ = _Package
if not TYPE_CHECKING:
    record = _package  # the name that `distdbg` looks up here
