"""What an error of NCCL says, as a DistBackendError: NCCL's own words, and what usually helps."""

from __future__ import annotations

import re
from typing import Any, Final

from distdbg.errors import DistBackendError
from distdbg.runtime.backends.nccl.library import NcclLibrary
from distdbg.runtime.backends.nccl.wire import version_text

_LONGEST = 120

#: What the text of an error tells of its cause, the most telling first.
_ADVICE: Final = (
    (
        r"duplicate gpu|same cuda device",
        "NCCL needs a GPU for each rank: device_id=, or CUDA_VISIBLE_DEVICES for each; "
        "backend='gloo' takes arrays of several ranks on one GPU",
    ),
    (
        r"mismatched nccl version|version mismatch",
        "install one version of nvidia-nccl-cu12 on all hosts",
    ),
    (
        r"/dev/shm|shared memory|no space left|posix_fallocate|shm",
        "give /dev/shm more room (docker run --shm-size=1g), or set NCCL_SHM_DISABLE=1",
    ),
    (
        r"no socket interface|no interface|connection refused|no route|connect to|bootstrap|"
        r"socket|timed out",
        "name the interface that the hosts reach each other by: NCCL_SOCKET_IFNAME=eth0",
    ),
    (
        r"float8|fp8|e4m3|e5m2",
        "to reduce float8 NCCL needs a GPU of compute capability 9.0 or newer (H100): reduce as bfloat16",
    ),
    (r"out of memory", "free GPU memory: cupy.get_default_memory_pool().free_all_blocks()"),
    (r"remote process exited|network error|remote_error", "look for the rank that ended first"),
)
_ELSE: Final = "NCCL_DEBUG=INFO has NCCL write what it does"


def advice(text: str) -> str:
    """What helps against an error with this text."""
    lowered = text.lower()
    return next((hint for words, hint in _ADVICE if re.search(words, lowered)), _ELSE)


def is_nccls(error: Exception, library: NcclLibrary) -> bool:
    """Whether NCCL or CUDA has raised it."""
    # CuPy has no word for some numbers of NCCL, and then raises a KeyError of the number.
    is_unnamed = isinstance(error, KeyError) and error.args[:1] in ((6,), (7,), (8,))
    return isinstance(error, (library.nccl.NcclError, RuntimeError)) or is_unnamed


def to_error(
    error: Exception, what: str, library: NcclLibrary, comm: Any = None
) -> DistBackendError:
    """`what` is the op and its group; `comm` CuPy's communicator, if there is one."""
    text = (str(error).splitlines() or [type(error).__name__])[0].partition(" (run with")[0]
    if isinstance(error, KeyError):
        text = f"NCCL error {error.args[0]}"
    address = int(getattr(comm, "comm", 0) or 0)
    last = library.extra.last_error(address).replace("\n", "; ")
    first = f"{what} failed{' in NCCL' if is_nccls(error, library) else ''}: {text}"
    return DistBackendError(
        first if len(first) <= _LONGEST else f"{first[: _LONGEST - 4]} ...",
        details=[
            f"NCCL {version_text(library.version)}: {text}",
            *([f"NCCL's last error: {last}"] if last else []),
        ],
        hint=advice(f"{text} {last}"),
    )
