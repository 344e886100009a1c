"""libucc, loaded when a group first needs it: structures, functions, numbers. Interface version 1.

Fields that are not filled here are left out; zeros stand in their place (`_rest`), also where a newer libucc
has more of them. Which fields count is said by the mask of each structure.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    Union,
    c_char,
    c_char_p,
    c_double,
    c_int,
    c_int64,
    c_size_t,
    c_uint,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

from distdbg.errors import BackendMissingError, DistBackendError

INSTALL: Final = (
    "install libucc.so.1 where the loader finds it (the package libucc1, where there is one)"
)
#: What the loader is asked for, in this order.
NAMES: Final = ("libucc.so.1", "libucc.so")

OK, IN_PROGRESS, NO_MESSAGE, TIMED_OUT = 0, 1, -6, -8
HOST, CUDA = 0, 1
_THREAD_MULTIPLE: Final = 2
_NEEDED: Final = ("ucc_init_version", "ucc_context_create", "ucc_team_create_post")


class Coll:
    """The collectives, as bits."""

    ALLGATHER, ALLGATHERV, ALLREDUCE, ALLTOALLV = 1 << 0, 1 << 1, 1 << 2, 1 << 4
    BARRIER, BCAST, GATHERV, REDUCE = 1 << 5, 1 << 6, 1 << 10, 1 << 11
    REDUCE_SCATTER, REDUCE_SCATTERV, SCATTERV = 1 << 12, 1 << 13, 1 << 15


class CollArgsFlag:
    """How the arguments of a collective are to be read."""

    IN_PLACE, COUNT_64BIT, DISPLACEMENTS_64BIT = 1 << 0, 1 << 2, 1 << 3
    CONTIGUOUS_SOURCE, CONTIGUOUS_TARGET = 1 << 4, 1 << 5


def datatype(number: int) -> int:
    """One of UCC's own datatypes; the low bits say that it is one."""
    return number << 3


#: status allgather(source, target, nbytes of one, info, &request)
AllgatherFunction = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_void_p, POINTER(c_void_p))
#: status test(request), status free(request)
RequestFunction = CFUNCTYPE(c_int, c_void_p)


class BootstrapExchange(Structure):
    """How UCC has the members of something exchange bytes before they are connected."""

    _fields_ = [
        ("allgather", AllgatherFunction),
        ("test", RequestFunction),
        ("free", RequestFunction),
        ("info", c_void_p),
        ("count", c_uint32),
        ("place", c_uint32),
    ]


class LibraryParams(Structure):
    """What ucc_init is told."""

    THREAD_MODE = 1 << 0
    _fields_ = [
        ("mask", c_uint64),
        ("thread_mode", c_int),
        ("coll_types", c_uint64),
        ("reduction_types", c_uint64),
        ("sync_type", c_int),
        ("_rest", c_char * 64),
    ]


class ContextParams(Structure):
    """What a context is made with."""

    EXCHANGE = 1 << 2
    _fields_ = [
        ("mask", c_uint64),
        ("type", c_int),
        ("sync_type", c_int),
        ("exchange", BootstrapExchange),
        ("_rest", c_char * 128),
    ]


class TeamParams(Structure):
    """What a team is made with."""

    PLACE, PLACES, SIZE, EXCHANGE = 1 << 2, 1 << 4, 1 << 5, 1 << 7
    _fields_ = [
        ("mask", c_uint64),
        ("flags", c_uint64),
        ("ordering", c_int),
        ("most_in_flight", c_uint64),
        ("place", c_uint64),
        ("place_list", c_void_p),
        ("places", c_int),  # 0: numbered without gaps
        ("size", c_uint64),
        ("sync_type", c_int),
        ("exchange", BootstrapExchange),
        ("_rest", c_char * 256),
    ]


class EvenBuffer(Structure):
    """One piece of memory."""

    _fields_ = [
        ("buffer", c_void_p),
        ("count", c_uint64),
        ("datatype", c_uint64),
        ("memory_type", c_int),
    ]


class UnevenBuffer(Structure):
    """One piece of memory, cut: a part for each member."""

    _fields_ = [
        ("buffer", c_void_p),
        ("counts", c_void_p),
        ("displacements", c_void_p),
        ("datatype", c_uint64),
        ("memory_type", c_int),
    ]


class CollBuffer(Union):
    """Either of the two; which one says the kind of collective."""

    _fields_ = [("even", EvenBuffer), ("uneven", UnevenBuffer)]


class Arguments(Structure):
    """One collective."""

    FLAGS = 1 << 0
    _fields_ = [
        ("mask", c_uint64),
        ("kind", c_int),
        ("source", CollBuffer),
        ("target", CollBuffer),
        ("op", c_int),
        ("flags", c_uint64),
        ("root", c_uint64),
        ("error_type", c_int),
        ("tag", c_uint16),
        ("work_buffer", c_void_p),
        ("callback", c_void_p),
        ("callback_data", c_void_p),
        ("timeout_s", c_double),
        ("first", c_uint64),
        ("stride", c_int64),
        ("size", c_uint64),
        ("_rest", c_char * 128),
    ]


_SIGNATURES: dict[str, tuple[type | None, Sequence[Any]]] = {
    "ucc_lib_config_read": (c_int, (c_char_p, c_char_p, POINTER(c_void_p))),
    "ucc_lib_config_release": (None, (c_void_p,)),
    "ucc_init_version": (
        c_int, (c_uint, c_uint, POINTER(LibraryParams), c_void_p, POINTER(c_void_p)),
    ),
    "ucc_context_config_read": (c_int, (c_void_p, c_char_p, POINTER(c_void_p))),
    "ucc_context_config_release": (None, (c_void_p,)),
    "ucc_context_create": (c_int, (c_void_p, POINTER(ContextParams), c_void_p, POINTER(c_void_p))),
    "ucc_context_progress": (c_int, (c_void_p,)),
    "ucc_context_destroy": (c_int, (c_void_p,)),
    "ucc_team_create_post": (
        c_int, (POINTER(c_void_p), c_uint32, POINTER(TeamParams), POINTER(c_void_p)),
    ),
    "ucc_team_create_test": (c_int, (c_void_p,)),
    "ucc_team_destroy": (c_int, (c_void_p,)),
    "ucc_collective_init": (c_int, (POINTER(Arguments), POINTER(c_void_p), c_void_p)),
    "ucc_collective_post": (c_int, (c_void_p,)),
    "ucc_collective_finalize": (c_int, (c_void_p,)),
    "ucc_status_string": (c_char_p, (c_int,)),
}  # fmt: skip


class UccLibrary:
    """libucc as all groups of this process use it."""

    def __init__(self, dll: ctypes.CDLL) -> None:
        self._dll: Final = dll
        #: Held while UCC is called: it need not have been built for several threads.
        self.lock: Final = threading.RLock()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(dll, name)
            function.restype, function.argtypes = result, arguments
        config, self.handle = c_void_p(), c_void_p()
        self.call("ucc_lib_config_read", None, None, ctypes.byref(config))
        params = LibraryParams(mask=LibraryParams.THREAD_MODE, thread_mode=_THREAD_MULTIPLE)
        try:
            self.call(
                "ucc_init_version", 1, 0, ctypes.byref(params), config, ctypes.byref(self.handle)
            )
        finally:
            dll.ucc_lib_config_release(config)

    def call(self, name: str, *arguments: Any) -> int:
        """Call a function; its status, where that is no error."""
        with self.lock:
            status = getattr(self._dll, name)(*arguments)
        if status is not None and status < 0:
            raise self.error(f"{name} failed", status)
        return status or OK

    def unlocked(self, name: str) -> Any:
        """A function that may wait for other ranks, which may be threads of this process."""
        return getattr(self._dll, name)

    def release_config(self, config: Any) -> None:
        """Free the settings of a context."""
        with self.lock:
            self._dll.ucc_context_config_release(config)

    def error(self, what: str, status: int) -> DistBackendError:
        """What is raised for a status of UCC's."""
        text = self._dll.ucc_status_string(status).decode(errors="replace")
        return DistBackendError(
            f"{what} in UCC: {text} ({status})",
            hint="UCC_LOG_LEVEL=info has it say what it tried" if status == -1 else None,
        )


_lock = threading.Lock()  # protects _library
_library: UccLibrary | None = None


def load(names: Sequence[str] = NAMES) -> UccLibrary:
    """libucc, ready for groups; BackendMissingError says what is not there."""
    global _library
    with _lock:
        if _library is None:
            found = _open(names)
            if isinstance(found, str):
                raise BackendMissingError(
                    f"backend 'ucc' is not available here: {found}", hint=INSTALL
                )
            _library = UccLibrary(found)
        return _library


def why_not() -> str | None:
    """Why no UCC groups can be made; None where they can. Nothing is started."""
    with _lock:
        if _library is not None:
            return None
        found = _open(NAMES)
        return found if isinstance(found, str) else None


def _open(names: Sequence[str]) -> ctypes.CDLL | str:
    """The library, or why there is none."""
    reason = ""
    for name in names:
        try:
            dll = ctypes.CDLL(name)
        except OSError as error:
            reason = reason or str(error).partition("\n")[0]
            continue
        missing = [symbol for symbol in _NEEDED if not hasattr(dll, symbol)]
        if missing:
            return f"{name} has no {missing[0]}"
        return dll
    return reason
