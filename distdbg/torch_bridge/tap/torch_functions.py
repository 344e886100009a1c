"""Functions of torch's as they were before install.py put ours in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_real: dict[str, Any] = {}


def real_wait(work: Any, *args: Any) -> Any:
    """Torch's Work.wait."""
    return _real["wait"](work, *args)


def unboxed_work(result: Any) -> Any:
    """The Work in what a c10d op returns; None where there is none."""
    boxed = result[-1] if isinstance(result, tuple) else result
    if boxed is None:
        return None
    try:
        return _real["unbox_work"](boxed)
    except RuntimeError:
        return None  # an op in a block of NCCL's, whose Work comes at the end


def keep_torchs_own(wait: Callable[..., Any], unbox_work: Callable[[Any], Any]) -> None:
    """Remember them, before they are replaced."""
    _real["wait"], _real["unbox_work"] = wait, unbox_work
