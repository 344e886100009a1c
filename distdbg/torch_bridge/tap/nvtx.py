"""NVTX ranges beside the record, for NVIDIA's profilers: each op while it is started, and each span.

They are on with DISTDBG_NVTX=1, or where a profiler that reads them has started the program (it sets
NVTX_INJECTION64_PATH), and torch was built with CUDA. Else nothing in here is called: what an op passes is
replaced only where ranges are wanted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol

from distdbg.config import read_setting
from distdbg.runtime.api import marks

if TYPE_CHECKING:
    from distdbg.torch_bridge.tap.calls import TapCall
    from distdbg.torch_bridge.tap.lane import FastLane, KnownLook

_PROFILER = "NVTX_INJECTION64_PATH"


def find_nvtx(torch: Any) -> Any:
    """Torch's module of NVTX where ranges are wanted and torch can make them; else None."""
    wanted = read_setting("DISTDBG_NVTX")
    if not (bool(os.environ.get(_PROFILER)) if wanted is None else wanted):
        return None
    return torch.cuda.nvtx if torch.version.cuda is not None else None


class ShownGroup(Protocol):
    """The group whose ops are shown (groups.py)."""

    lane: FastLane | None
    group: Any

    def dispatch_long(self, call: TapCall) -> Any:
        """Start an op that has no short way."""
        ...


class Ranges:
    """Pushes and pops them on the thread that calls."""

    def __init__(self, nvtx: Any) -> None:
        self._nvtx = nvtx

    def show_spans(self) -> None:
        """Also those of the program's own `distdbg.span`."""
        marks.beside = (self._nvtx.range_push, self._nvtx.range_pop)

    def show_ops(self, tapped: ShownGroup) -> None:
        """The collectives of a group, on both of their ways."""
        lane, label = tapped.lane, tapped.group.label
        if lane is not None:
            launch = lane.launch

            def launch_shown(
                lane: FastLane, known: KnownLook, is_async: bool, limit_ns: int, is_boxed: bool, comm: str,
                *start: Any,
            ) -> Any:  # fmt: skip
                with _Range(self._nvtx, comm or _name(known.make()), label):
                    return launch(lane, known, is_async, limit_ns, is_boxed, comm, *start)

            setattr(lane, "launch", launch_shown)  # noqa: B010 - of this one alone
        dispatch_long = tapped.dispatch_long

        def dispatch_shown(call: TapCall) -> Any:
            with _Range(self._nvtx, _name(call), label):
                return dispatch_long(call)

        setattr(tapped, "dispatch_long", dispatch_shown)  # noqa: B010 - as above

    def around(self, method: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A method of torch's, as a range."""

        @wraps(method)
        def shown(*args: Any, **kwargs: Any) -> Any:
            with _Range(self._nvtx, name):
                return method(*args, **kwargs)

        return shown


class _Range:
    __slots__ = ("_name", "_nvtx")

    def __init__(self, nvtx: Any, name: str, group: str = "") -> None:
        self._nvtx = nvtx
        self._name = f"{name} on group '{group}'" if group else name

    def __enter__(self) -> None:
        self._nvtx.range_push(self._name)

    def __exit__(self, *error: object) -> None:
        self._nvtx.range_pop()


def _name(call: TapCall) -> str:
    return call.name or call.kind.label
