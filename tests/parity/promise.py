"""The words of a promise of torch.distributed's documentation, on the test that shows how it is here.

docs/parity_table.py reads them from the source, for the table of docs/reference/parity.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from tests.support.store_ranks import run_store_ranks

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")
Here = Literal["as torch", "stricter", "more", "different", "missing"]


def promise(words: str, here: Here = "as torch", note: str = "") -> Callable[[F], F]:
    """Attach the promise to its test."""

    def attach(test: F) -> F:
        test.promise = (words, here, note)  # type: ignore[attr-defined]
        return test

    return attach


def on_ranks(function: Callable[[int], T], size: int = 2, **options: Any) -> list[T]:
    """Call function(rank) on ranks that are threads, over the engine for CPUs; return the results."""
    return run_store_ranks(function, size, backend="gloo", **options)
