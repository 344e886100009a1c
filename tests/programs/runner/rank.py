"""What one forked rank does: run the program as a script, and write down how it ended.

The program itself imports `distdbg` and `numpy`; for torch, alone or watched, these two names stand
for torch.distributed and a few functions that make tensors. With distdbg and watched every op is looked
at: when it was called, and what was in its outputs before, so that an error can be asked whether a byte
moved.
"""

from __future__ import annotations

import builtins
import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

_AFTER_TIMEOUT_S = 0.4
#: Facts of an error that are scored.
_FACTS = ("kind", "seq", "group", "ranks", "missing", "arrived", "peer", "how", "waited_s")


def run(subject: str, order: dict[str, Any], rank: int) -> None:
    """Never returns normally where the program does not: its exception goes on from here."""
    folder = Path(order["folder"])
    _redirect(folder / f"rank{rank}.out", 1)
    _redirect(folder / f"rank{rank}.err", 2)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    os.environ.update(
        order["env"],
        RANK=str(rank),
        WORLD_SIZE=str(order["ranks"]),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(order["ranks"]),
    )
    path = order["program"]
    sys.argv = [path]
    code = compile(Path(path).read_text(), path, "exec")
    script = ModuleType("__main__")
    script.__dict__.update(__file__=path, __builtins__=_builtins(subject))
    sys.modules["__main__"] = script  # pickle looks its classes up there
    watch = Watch()
    if subject == "distdbg":
        watch.install()
    elif subject == "watched":
        watch.install_beside_torch()
    if subject != "distdbg" and "torch.distributed" in sys.modules:
        sys.modules["torch.distributed"].set_debug_level_from_env()
    report: dict[str, Any] = {"error": None}
    started = time.monotonic()
    try:
        exec(code, script.__dict__)
    except BaseException as error:
        report["raised_s"] = time.monotonic()
        report["error"] = {
            "class": type(error).__name__,
            "text": str(error),
            "first": str(error).partition("\n")[0],
            "line": _line(error, path),
            "facts": {name: getattr(error, name) for name in _FACTS if hasattr(error, name)},
            **watch.look(error),
        }
        is_making = getattr(error, "kind", "") == "new_group"
        if isinstance(error, TimeoutError) or is_making:
            # The others notice it about now too: each is to see it, not that this rank ends.
            time.sleep(_AFTER_TIMEOUT_S)
        raise
    finally:
        report["ended_s"] = time.monotonic()
        report["took_s"] = report["ended_s"] - started
        report["op_count"] = len(watch.ops)
        # Whole or not at all, should the rank be killed here.
        partial = folder / f"rank{rank}.partial"
        partial.write_text(json.dumps(report, default=str))
        partial.replace(folder / f"rank{rank}.json")


def _redirect(path: Path, descriptor: int) -> None:
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(opened, descriptor)
    os.close(opened)


def _line(error: BaseException, path: str) -> int | None:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path
    ]
    return frames[-1].lineno if frames else None


def _builtins(subject: str) -> dict[str, Any]:
    names = dict(vars(builtins))
    if subject == "distdbg":
        return names

    def import_stand_in(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "distdbg":
            return importlib.import_module("runner.torch_dist")
        if name == "numpy":
            return importlib.import_module("runner.torch_numpy")
        return builtins.__import__(name, *args, **kwargs)

    names["__import__"] = import_stand_in
    return names


@dataclass(slots=True)
class Op:
    """One op that was given to a group, as it was before."""

    called_s: float
    #: What messages may call it; the group itself is the program's alone.
    group: tuple[str, str]
    kind: str
    seq: int
    outputs: list[tuple[Any, bytes]]


class Watch:
    """Sees every op of this rank before the group does."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def install(self) -> None:
        """Put a look at each op before ProcessGroup.run."""
        from distdbg.runtime.groups import group

        original = group.ProcessGroup.run
        note = self.note

        def run(pg: Any, call: Any, async_op: bool = False) -> Any:
            note(pg, call)
            return original(pg, call, async_op)

        # The program's line is the first outside the package: this must not count as outside.
        run.__code__ = run.__code__.replace(co_filename=group.__file__)
        group.ProcessGroup.run = run  # type: ignore[assignment,method-assign]

    def install_beside_torch(self) -> None:
        """Have torch's groups watched, and put a look at each op before the tap's."""
        from distdbg.torch_bridge.hook import install
        from distdbg.torch_bridge.tap import groups, lane

        install()
        original = groups.TappedGroup.dispatch
        make_lane = lane.FastLane.__init__
        note = self.note

        def dispatch(tapped: Any, call: Any, *bucket: Any) -> Any:
            note(tapped.group, call)
            return original(tapped, call, *bucket)

        dispatch.__code__ = dispatch.__code__.replace(co_filename=groups.__file__)
        groups.TappedGroup.dispatch = dispatch  # type: ignore[method-assign]

        def launch(launch_short: Any, way: Any, known: Any, *rest: Any) -> Any:
            given = rest[5]  # as Lane.launch is called: what torch's function is given
            if given:  # after the group or the keys comes what is written to
                call = known.make()
                outputs = [] if call.kind.label == "barrier" else given[1]
                call.outputs = outputs if isinstance(outputs, list) else [outputs]
                note(way.tapped.group, call)
            return launch_short(way, known, *rest)

        launch.__code__ = launch.__code__.replace(co_filename=lane.__file__)

        def __init__(way: Any, *args: Any) -> None:
            make_lane(way, *args)
            way.launch = partial(launch, way.launch)

        # Each lane has its own `launch`, made with it: its constructor is the place to put ours around it.
        lane.FastLane.__init__ = __init__  # type: ignore[method-assign]

    def note(self, pg: Any, call: Any) -> None:
        """Keep what the op may write to."""
        if pg.collector is not None:
            return  # comes again when the block ends
        kind = call.kind.label
        if kind not in ("send", "recv"):
            self._counts[pg] = self._counts.get(pg, 0) + 1
        outputs = [
            (array, np.asarray(array).tobytes()) for array in call.outputs if _is_dense(array)
        ]
        names = (pg.label, pg.group_name)
        self.ops.append(Op(time.monotonic(), names, kind, self._counts.get(pg, 0), outputs))

    def look(self, error: BaseException) -> dict[str, Any]:
        """When the op of this error was called, and whether its outputs are as they were."""
        seq, label = getattr(error, "seq", None), getattr(error, "group", None)
        if seq is None:
            return {}
        for op in reversed(self.ops):
            if label not in op.group:
                continue
            if op.seq == seq or (seq < 0 and op.kind in ("send", "recv")):
                changed = any(np.asarray(array).tobytes() != was for array, was in op.outputs)
                return {"called_s": op.called_s, "is_untouched": not changed}
        return {}


def _is_dense(array: Any) -> bool:
    return hasattr(array, "__array__") or not hasattr(array, "layout")
