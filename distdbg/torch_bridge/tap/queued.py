"""When a GPU began and ended the ops that torch queues there, as NCCL's.

Such an op is over for its future when its device has it in a queue. So an event goes into the caller's
stream directly before the op. Another one goes into a stream of our own that waits for what the future is
done with; of an op that its caller waits for, into the caller's stream behind that wait, which also has
what the program has queued meanwhile. A native thread reads both (runtime/backends/nccl/events.py).

Where no event can be recorded the record says of an op that its end is when it was queued: in a block that
the device gets as a whole (batch_isend_irecv, a coalescing manager), while a graph is captured, where the
driver cannot be opened, and where torch is built for other devices than NVIDIA's.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import TYPE_CHECKING, Any

from distdbg.log.logs import get_logger
from distdbg.native import NativeError, QueuedOps, StreamEvents
from distdbg.record.format import Status
from distdbg.runtime.backends.nccl.events import event_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: The library of the driver, which torch has loaded.
DRIVER = "libcuda.so.1"
#: Where an op is that has no tensor, or its tensors on the host, or on a device without events. Else it is
#: the number of the GPU.
NOWHERE, HOST, WITHOUT_EVENTS = -1, -2, -3

_log = get_logger("torch")


def queued_ops() -> QueuedOps:
    """Those of one group."""
    import torch  # it is there: a group of it is made

    current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if current_stream is None or getattr(torch.version, "hip", None) is not None:
        return QueuedOps(None, None, None, None)
    events = _stream_events(DRIVER)
    reader = None if events is None else event_reader(DRIVER)
    if reader is None:
        return QueuedOps(None, None, None, None)
    return QueuedOps(events, reader, current_stream, _wait_in)


def _wait_in(address: int, device: int, future: Any) -> None:
    """Have a stream wait for what a future is done with."""
    import torch

    with torch.cuda.stream(_stream(address, device)):
        future.wait()


@cache
def _stream(address: int, device: int) -> Any:
    import torch

    return torch.cuda.ExternalStream(address, device=device)


@cache
def _stream_events(driver: str) -> StreamEvents | None:
    try:
        return StreamEvents(driver)
    except NativeError as error:
        _log.info("ends of ops on GPUs are recorded as they are queued: %s", error)
        return None


def device_of(tensors: Iterable[Any]) -> int:
    """The number of the GPU that has them, or one of those above."""
    for tensor in tensors:
        device = getattr(tensor, "device", None)
        if device is not None:
            if device.type == "cuda":
                return int(device.index or 0)
            return HOST if device.type == "cpu" else WITHOUT_EVENTS
    return NOWHERE


def note_blocks_and_aborts(group_class: Any, lanes: Mapping[Any, Any]) -> None:
    """Learn when the program opens a block on a group of torch's, closes it, or aborts the group."""

    def around(name: str, note: Callable[[Any], None]) -> None:
        real = getattr(group_class, name, None)
        if real is None:
            return

        @wraps(real)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            lane = lanes.get(self)
            if lane is not None and lane.engine.queued is not None:
                note(lane.engine.queued)
            return real(self, *args, **kwargs)

        setattr(group_class, name, method)

    def set_in_block(queued: QueuedOps, is_open: bool) -> None:
        queued.is_in_block = is_open

    around("_start_coalescing", lambda queued: set_in_block(queued, True))
    around("_end_coalescing", lambda queued: set_in_block(queued, False))
    # NCCL's kernels return then, as if they had done what they were for.
    around("abort", lambda queued: queued.broken_off(int(Status.BROKEN)))
