"""Where the tap gets into torch: the functions that make and destroy groups, wrapped at import.

Nothing else of torch is touched before the first group. Whatever goes wrong in here is told once, and the
program goes on as if we were not there; but for groups that ranks make differently.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from distdbg.torch_bridge.guarded import guarded, state, switch_off

_MARK = "_distdbg_tap"
_TIMEOUT = "DISTDBG_TIMEOUT_S"


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


def _joining(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        """A rank has no record before its first group: that it waits for that one is noted beside it."""
        with _note_of(function, args, kwargs):
            return function(*args, **kwargs)

    return init_process_group


def _note_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A block; one that does nothing where the tap is off, or torch will say what is wrong with the call."""
    from contextlib import nullcontext

    if state["off"]:
        return nullcontext()
    try:
        from inspect import signature

        from distdbg.record.join_note import noted_join
        from distdbg.runtime.process.exit_reason import tell_launcher_of_errors

        tell_launcher_of_errors()
        given = signature(function).bind(*args, **kwargs).arguments
        return noted_join(
            given.get("init_method"),
            world_size=given.get("world_size"),
            rank=given.get("rank"),
            has_store=given.get("store") is not None,
            has_launcher_store=False,
        )
    except Exception:  # noqa: BLE001 - of a call that fails torch says why, and the rest is ours
        return nullcontext()


def _making(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def _new_process_group_helper(*args: Any, **kwargs: Any) -> Any:
        job = _job()
        if job is None:
            return function(*args, **kwargs)
        with guarded("a group"):
            from distdbg.record.join_note import note_connected

            note_connected()
            job.before_group(args, kwargs)
        job.compare_group(args, kwargs)
        made = function(*args, **kwargs)
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


def _limiting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def _get_default_timeout(backend: Any) -> Any:
        """`distdbg run --timeout` is for groups of which the program gives no timeout of its own."""
        from datetime import timedelta

        from distdbg.config import VARIABLES, read_float

        if not state["off"]:
            with guarded("the limit of ops"):
                limit_s = read_float(_TIMEOUT)
                if limit_s != next(one.default for one in VARIABLES if one.name == _TIMEOUT):
                    return timedelta(seconds=limit_s)
        return function(backend)

    return _get_default_timeout


_WRAPPERS = {
    "_get_default_timeout": _limiting,
    "_new_process_group_helper": _making,
    "destroy_process_group": _destroying,
    "init_process_group": _joining,
    "monitored_barrier": _monitoring,
}


def _job(is_new: bool = True) -> Any:
    """The tap of this process, made with the first group; None where it is off."""
    if state["off"]:
        return None
    if state["job"] is None and is_new:
        try:
            from distdbg.torch_bridge.job import TorchJob

            state["job"] = TorchJob()
        except Exception as error:  # noqa: BLE001 - as in guarded
            switch_off(f"{type(error).__name__}: {error}".splitlines()[0])
    return state["job"]
