"""Work of the backend: torch's class over ours.

torch's C++ asks a Work for two things: wait() and get_future(). A future is completed with the list of
output tensors by the thread that watches the ops of this process (runtime/handles/watcher.py), or by a
thread that waits for the op. It fails through a callback that raises: an exception that is set on a torch
Future is a value to C++. What a Python Future holds is a Python object to C++, so torch's built-in hook
FP16_COMPRESS, which wants a list of tensors of its own kind, refuses it; the hook of Python with that name
takes it.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist

from distdbg.runtime.handles.work import Work

#: Up to torch 2.6 its C++ does not keep what is Python's of a Work, and would wait for ever: so it is kept
#: here until it was waited for, or its future asked for, or so many came after it. None: torch keeps it.
_kept: OrderedDict[int, Any] | None = OrderedDict() if torch.__version__ < (2, 7) else None
_MAX_KEPT = 1024

_Base: Any = torch_dist.Work
_init = _Base.__init__
_NO_TIMEOUT = timedelta(0)


class DistdbgWork(_Base):
    """One op in flight, or one that has ended."""

    def __init__(self, work: Work) -> None:
        _init(self)
        self._work = work
        self._future: Any = None
        _keep(self)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Block until the op has ended: True, or its error is raised."""
        has_ended = self._work.wait(timeout)
        if _kept is not None:
            _kept.pop(id(self), None)
        return has_ended

    def is_completed(self) -> bool:
        """Return whether the op has ended, well or badly."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Return whether the op has ended well."""
        return self._work.is_success()

    def exception(self) -> BaseException | None:
        """Return the error of the ended op; None when it went well or has not ended."""
        return self._work.exception()

    def synchronize(self) -> None:
        """Wait for the op: host memory has no stream to order."""
        self._work.wait()

    def block_current_stream(self) -> None:
        """Wait for the op: what comes next on the CPU may read the tensors."""
        self._work.wait()

    def source_rank(self) -> int:
        """Return the group rank that an ended recv got its message from."""
        return self._work.source_rank()

    def _source_rank(self) -> int:
        return self._work.source_rank()

    def result(self) -> list[Any]:
        """Return the output tensors of the ended op."""
        return self._work.result()

    def get_future(self) -> Any:
        """Return a torch Future of the output tensors."""
        if self._future is None:
            self._future = future_of(self._work)
            if _kept is not None:
                _kept.pop(id(self), None)
        return self._future

    def get_future_result(self) -> Any:
        """Return a torch Future of a WorkResult; it never raises."""
        return self._work.get_future_result()

    def __repr__(self) -> str:
        return repr(self._work)


class DoneWork(_Base):
    """What an op gives that has ended when it returns, well; one serves any number of them."""

    def __init__(self, outputs: list[Any] | None = None) -> None:
        _init(self)
        self._outputs = outputs or []
        _keep(self)

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Return True."""
        if _kept is not None:
            _kept.pop(id(self), None)
        return True

    def is_completed(self) -> bool:
        """Return True."""
        return True

    def is_success(self) -> bool:
        """Return True."""
        return True

    def exception(self) -> None:
        """Return None."""

    def synchronize(self) -> None:
        """Do nothing."""

    def block_current_stream(self) -> None:
        """Do nothing."""

    def result(self) -> list[Any]:
        """Return the output tensors."""
        return self._outputs

    def get_future(self) -> Any:
        """Return a completed torch Future of the output tensors."""
        future: Any = torch.futures.Future()
        future.set_result(self._outputs)
        return future


def _keep(work: Any) -> None:
    if _kept is not None:
        _kept[id(work)] = work
        if len(_kept) > _MAX_KEPT:
            _kept.popitem(last=False)


def future_of(work: Work) -> Any:
    """A torch Future of the outputs of an op; torch's C++ may wait for it."""
    ended: Any = torch.futures.Future()
    outcome = ended.then(lambda _: work.result())  # it raises what the op raised
    work.watch(lambda _: ended.set_result(None))
    return outcome
