"""DeviceSide: what an op has on its device beside its arrays, made on the thread that calls the op.

The streams of CuPy and torch belong to threads, and an op may be started by another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from distdbg.runtime.arrays.device_arrays import DeviceBuffer


class DeviceSide:
    """Of one Call."""

    __slots__ = (
        "_can_watch", "_lock", "begin", "device", "inputs", "is_torchs", "on_end", "on_queued", "on_start",
        "outputs", "ready", "stop_watching", "stream",
    )  # fmt: skip

    def __init__(
        self,
        inputs: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
        stream: Any,
        ready: Any,
        is_torchs: bool,
        device: int,
    ) -> None:
        #: That of the arrays, or of the program where there are none.
        self.device = device
        self.inputs = inputs
        self.outputs = outputs
        #: Where the caller's own work is, before and after the op.
        self.stream = stream
        #: The event after what the caller had queued when it called.
        self.ready = ready
        #: Whether that is torch's stream.
        self.is_torchs = is_torchs
        #: The event before it in the group's stream; None: it is not queued, or not recorded.
        self.begin: Any = None
        #: Called once with the error or None when the op has ended; on any thread.
        self.on_end: Callable[[BaseException | None], object] | None = None
        #: Called once when the device has come to the op.
        self.on_start: Callable[[], object] | None = None
        #: Called when all of the op is queued, with the event after it.
        self.on_queued: Callable[[Any], object] | None = None
        #: Ends what on_queued() has begun; when it returns nobody asks for the events any more.
        self.stop_watching: Callable[[], object] | None = None
        self._can_watch = True
        self._lock = threading.Lock()  # so that each is called once, and in order

    @property
    def is_recorded(self) -> bool:
        """Whether anybody asks when it starts."""
        return self.on_start is not None

    @property
    def is_open(self) -> bool:
        """Whether somebody is yet to be told of its end."""
        return self.on_end is not None

    def note_progress(self) -> None:
        """Tell that the op has started, when it has and nobody has told."""
        begin = self.begin
        if self.on_start is not None and begin is not None and begin.done:
            with self._lock:
                self._start()

    def queued(self, end: Any) -> None:
        """Tell the event after the op, if nobody has broken it off."""
        with self._lock:
            tell, self.on_queued = self.on_queued, None
            if self._can_watch and tell is not None:
                tell(end)

    def break_off(self) -> None:
        """The op is about to be broken off: an event that passes now is no good end."""
        with self._lock:
            self._stop_watching()

    def end(self, error: BaseException | None) -> None:
        """Tell that the op has ended, if nobody has yet."""
        with self._lock:
            if error is None:
                self._start()
            else:
                self._stop_watching()
            self.on_start = None
            tell, self.on_end = self.on_end, None
            if tell is not None:
                tell(error)  # which asks the events how long the op took, if it ended well
            self._stop_watching()  # they may be destroyed from now on

    def _stop_watching(self) -> None:
        self._can_watch = False
        self.on_queued = None
        stop, self.stop_watching = self.stop_watching, None
        if stop is not None:
            stop()

    def _start(self) -> None:
        tell, self.on_start = self.on_start, None
        if tell is not None:
            tell()
