"""CuPy and NCCL of this process, loaded when a group first needs them.

Nothing here is imported before. Tests put a recording stand-in in the place of all three modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
import warnings
from typing import Any, Final, Protocol

from distdbg.errors import BackendMissingError

INSTALL: Final = "pip install 'distdbg[gpu]'"
NO_GPU: Final = "see whether nvidia-smi lists a GPU here, as this process sees it"
DRIVER: Final = "libcuda.so.1"
_NONE_HERE: Final = "there is no GPU"


class NcclExtras(Protocol):
    """What CuPy does not bind; see nccl_functions.py."""

    def last_error(self, comm: int) -> str:
        """What NCCL says of the last error."""
        ...

    def make_premul_sum(self, factor: bytes, code: int, comm: int) -> int:
        """An op with a factor."""
        ...

    def destroy_op(self, op: int, comm: int) -> None:
        """Free it."""
        ...


class NcclLibrary:
    """The modules that all groups of this process use."""

    def __init__(self, cupy: Any, nccl: Any, extra: NcclExtras, driver: str | None = None) -> None:
        #: The module cupy, of which `cuda` and `zeros` are used.
        self.cupy: Final = cupy
        #: The module cupy.cuda.nccl.
        self.nccl: Final = nccl
        self.extra: Final = extra
        #: The file of CUDA's driver that knows the events of `cupy`; None: only `cupy` does.
        self.driver: Final = driver
        self._capabilities: dict[int, int] = {}
        #: 22703 for 2.27.3.
        self.version = int(nccl.get_version())

    def device_count(self) -> int:
        """How many devices this process sees."""
        return int(self.cupy.cuda.runtime.getDeviceCount())

    def capability(self, device: int) -> int:
        """The compute capability of a device: 90 for 9.0."""
        if device not in self._capabilities:
            self._capabilities[device] = int(self.cupy.cuda.Device(device).compute_capability)
        return self._capabilities[device]

    def new_id(self) -> bytes:
        """What ranks need to find each other."""
        # CuPy before 14 gives and takes a tuple of signed chars.
        return bytes(byte & 0xFF for byte in self.nccl.get_unique_id())

    def open_communicator(self, size: int, unique_id: bytes, rank: int) -> Any:
        """A communicator; returns when all `size` ranks have called it."""
        given: Any = unique_id
        if not hasattr(self.nccl, "NcclConfig"):
            given = tuple(byte - 256 if byte > 127 else byte for byte in unique_id)
        return self.nccl.NcclCommunicator(size, given, rank)


_lock = threading.Lock()  # protects _library
_library: NcclLibrary | None = None


def load() -> NcclLibrary:
    """The modules; BackendMissingError says what is not there."""
    global _library
    with _lock:
        if _library is None:
            reason = _why_not()
            if reason is not None:
                raise BackendMissingError(
                    f"backend 'nccl' is not available here: {reason}", hint=what_helps(reason)
                )
            from distdbg.runtime.backends.nccl.nccl_functions import NcclFunctions

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nccl = importlib.import_module("cupy.cuda.nccl")
            _library = NcclLibrary(importlib.import_module("cupy"), nccl, NcclFunctions(), DRIVER)
        return _library


def is_installed() -> bool:
    """Whether CuPy is, which is not imported for that."""
    return _library is not None or importlib.util.find_spec("cupy") is not None


def why_not() -> str | None:
    """Why no NCCL groups can be made; None where they can. CuPy is imported where it is installed."""
    with _lock:
        return None if _library is not None else _why_not()


def what_helps(reason: str | None) -> str:
    """The hint for why_not()."""
    return NO_GPU if reason is not None and reason.startswith(_NONE_HERE) else INSTALL


def _why_not() -> str | None:
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy warns of libraries that it does not find
            cupy = importlib.import_module("cupy")
            nccl = importlib.import_module("cupy.cuda.nccl")
    except ImportError as error:
        return f"CuPy cannot be imported: {_one_line(error)}"
    if not nccl.available:
        return "CuPy finds no NCCL (nvidia-nccl-cu12 has it)"
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except RuntimeError as error:
        return f"{_NONE_HERE}: {_one_line(error)}"
    return None if count else _NONE_HERE


def _one_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
