"""Decides whether ranks of several hosts exchange data by UCX, and opens it.

DISTDBG_TRANSPORT=ucx asks for it; by itself it is chosen where a fabric is up that TCP would waste. libucp is
looked for when it is wanted: as the system knows it, then in the wheels that bring it (`libucx-cu12`). It
reads UCX_TLS, UCX_NET_DEVICES and its other variables itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from typing import Final

from distdbg.config import read_setting
from distdbg.errors import ConfigError
from distdbg.native import NativeError, UcxEngine
from distdbg.secure.settings import is_on

FABRICS: Final = Path("/sys/class/infiniband")
_SONAME: Final = "libucp.so.0"
#: Read when the library is loaded, where the user has not set them: it leaves crashes to Python, and what it
#: says is no output of the program.
_QUIET: Final = {
    "UCX_HANDLE_ERRORS": "none",
    "UCX_LOG_FILE": "stderr",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
}


def is_demanded() -> bool:
    """Whether the user asks for UCX. ConfigError where DISTDBG_TLS rules it out."""
    if read_setting("DISTDBG_TRANSPORT") != "ucx":
        return False
    if is_on():
        raise ConfigError(
            "DISTDBG_TRANSPORT=ucx and DISTDBG_TLS=1 exclude each other: UCX encrypts nothing",
            hint="unset one of them; DISTDBG_TRANSPORT=auto with DISTDBG_TLS=1 goes by TCP, encrypted",
        )
    return True


def is_worth_it() -> bool:
    """Whether UCX is chosen where nobody has asked for a transport."""
    return read_setting("DISTDBG_TRANSPORT") == "auto" and not is_on() and bool(active_fabrics())


def active_fabrics(folder: Path = FABRICS) -> list[str]:
    """The ports of InfiniBand and RoCE that are up, "mlx5_0/1"."""
    found = []
    for state in sorted(folder.glob("*/ports/*/state")):
        try:
            words = state.read_text(encoding="ascii")
        except OSError:  # the device has just gone
            continue
        if "ACTIVE" in words:
            found.append(f"{state.parts[-4]}/{state.parts[-2]}")
    return found


def open_engine(token: bytes) -> UcxEngine:
    """UCX of this process. ConfigError where no libucp can be opened, or it finds nothing to send by."""
    reasons = []
    with _quiet():
        for library in _libraries():
            try:
                return UcxEngine(library, token)
            except NativeError as error:
                reasons.append(str(error))
    raise ConfigError(
        "UCX cannot be used here", details=reasons,
        hint="install libucx0 (Debian), ucx (Fedora) or libucx-cu12 (pip), or unset DISTDBG_TRANSPORT",
    )  # fmt: skip


def _libraries() -> list[str]:
    """What may be opened, in order."""
    found = [_SONAME]
    wheel = util.find_spec("libucx")
    for folder in (wheel.submodule_search_locations or ()) if wheel is not None else ():
        library = Path(folder, "lib", _SONAME)
        if library.exists():
            found.append(str(library))
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    ours = {name: value for name, value in _QUIET.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
