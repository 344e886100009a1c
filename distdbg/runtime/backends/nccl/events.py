"""The native thread that reads from CUDA's driver when ops start and end; one per process.

Where the driver cannot be opened, the thread of watchdog.py writes the same, some milliseconds later.
"""

from __future__ import annotations

import atexit
import threading
from typing import Final

from distdbg.log.logs import get_logger
from distdbg.native import EventReader, NativeError

_log = get_logger("runtime")
_lock: Final = threading.Lock()  # protects what follows
_readers: dict[str, EventReader | None] = {}


def event_reader(driver: str | None) -> EventReader | None:
    """The reader of events of this driver, a file name; None: there is none."""
    if driver is None:
        return None
    with _lock:
        if driver not in _readers:
            _readers[driver] = _open(driver)
        return _readers[driver]


def _open(driver: str) -> EventReader | None:
    try:
        reader = EventReader(driver)
    except NativeError as error:
        _log.info("starts and ends of ops are read by a Python thread: %s", error)
        return None
    atexit.register(reader.close)  # not while the driver goes
    return reader
