"""Where the tap gets into torch: the functions that make and destroy groups, wrapped at import.

Nothing else of torch is touched before the first group. Whatever goes wrong in here is told once, and the
program goes on as if we were not there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

_MARK = "_distdbg_tap"


def prepare(c10d: Any) -> None:
    """Wrap them in torch.distributed.distributed_c10d, which has just been executed; idempotent."""
    for name, wrap in _WRAPPERS.items():
        function = getattr(c10d, name, None)
        if function is None or hasattr(function, _MARK):
            continue
        wrapped = wrap(function)
        setattr(wrapped, _MARK, True)
        setattr(c10d, name, wrapped)
        package = sys.modules.get("torch.distributed")
        if getattr(package, name, None) is function:  # imported before us
            setattr(package, name, wrapped)


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        job = _job()
        if job is None:
            return function(*args, **kwargs)
        with guarded("a group"):
            job.before_group(args, kwargs)
        made = function(*args, **kwargs)
        with guarded("a group"):
            job.on_group(made, args, kwargs)
        return made

    return _new_process_group_helper


def _destroying(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def destroy_process_group(group: Any = None) -> Any:
        job = _job(is_new=False)
        if job is not None:
            with guarded("the end of a group"):
                job.on_destroy(group)
        return function(group)

    return destroy_process_group


def _monitoring(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def monitored_barrier(
        group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
    ) -> Any:
        job = _job(is_new=False)
        if job is None:
            return function(group, timeout, wait_all_ranks)
        return job.on_monitored_barrier(
            group, timeout, wait_all_ranks, lambda: function(group, timeout, wait_all_ranks)
        )

    return monitored_barrier


_WRAPPERS = {
    "_new_process_group_helper": _making,
    "destroy_process_group": _destroying,
    "monitored_barrier": _monitoring,
}


class guarded:
    """In this block errors of ours end the watching, and not the program."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        switch_off(f"{self._what}: {type(error).__name__}: {error}".splitlines()[0])
        return True


def switch_off(why: str) -> None:
    """Let the job run on without us; says so once."""
    job = _job(is_new=False)
    _state["off"] = True
    if job is not None:
        job.stop()
    warnings.warn(f"distdbg does not watch this torch job: {why}", RuntimeWarning, stacklevel=3)


_state: dict[str, Any] = {"job": None, "off": False}


def _job(is_new: bool = True) -> Any:
    """The tap of this process, made with the first group; None where it is off."""
    if _state["off"]:
        return None
    if _state["job"] is None and is_new:
        try:
            from distdbg.torch_bridge.job import Job

            _state["job"] = Job()
        except Exception as error:  # noqa: BLE001 - as in guarded
            switch_off(f"{type(error).__name__}: {error}".splitlines()[0])
    return _state["job"]
