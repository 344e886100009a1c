"""When a GPU began and ended the ops that torch queues there, as NCCL's.

Such an op is over for its future when its device has it in a queue. So an event goes into the caller's
stream before the op, and another one where that future calls back: torch has a stream there that waits for
the op. One that its caller waits for has it behind that wait. A native thread reads both
(runtime/backends/nccl/events.py).

Where no event can be recorded the record says of an op that its end is when it was queued: in a block that
the device gets as a whole (batch_isend_irecv, a coalescing manager), while a graph is captured, where the
driver cannot be opened, and where torch is built for other devices than NVIDIA's.
"""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any

from distdbg.log.logs import get_logger
from distdbg.native import NativeError, QueuedOps, StreamEvents
from distdbg.runtime.backends.nccl.events import event_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: The library of the driver, which torch has loaded.
DRIVER = "libcuda.so.1"

_log = get_logger("torch")


def queued_ops() -> QueuedOps | None:
    """Those of one group; None: its device tells nothing."""
    import torch  # it is there: a group of it is made

    current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if current_stream is None or getattr(torch.version, "hip", None) is not None:
        return None
    events, reader = _stream_events(DRIVER), event_reader(DRIVER)
    return None if events is None or reader is None else QueuedOps(events, reader, current_stream)


@lru_cache
def _stream_events(driver: str) -> StreamEvents | None:
    try:
        return StreamEvents(driver)
    except NativeError as error:
        _log.info("ends of ops on GPUs are recorded as they are queued: %s", error)
        return None


def device_of(tensors: Iterable[Any]) -> int:
    """The number of the GPU that has them; -1: none has."""
    for tensor in tensors:
        device = getattr(tensor, "device", None)
        if device is not None and device.type == "cuda":
            return int(device.index or 0)
    return -1


def note_blocks(group_class: Any, lanes: Mapping[Any, Any]) -> None:
    """Learn of each block that is opened on a group of torch's, and closed. `lanes`: by these groups."""

    def noting(real: Callable[..., Any], is_opened: bool) -> Callable[..., Any]:
        @wraps(real)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            lane = lanes.get(self)
            if lane is not None and lane.engine.queued is not None:
                lane.engine.queued.is_in_block = is_opened
            return real(self, *args, **kwargs)

        return method

    for name, is_opened in (("_start_coalescing", True), ("_end_coalescing", False)):
        real = getattr(group_class, name, None)
        if real is not None:
            setattr(group_class, name, noting(real, is_opened))
