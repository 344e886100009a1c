"""The file of a measured profile: where it is, for which machine it holds, and whether it can be trusted.

One file for each kind of machine, so that hosts which share a home may differ. A file that is broken, that
others own or could have written, or that holds for another machine, kernel or version, counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from distdbg import __version__
from distdbg.runtime.rendezvous.state_folder import make_private_folder, state_folders
from distdbg.runtime.tuning.machine_cpus import machine_cpus
from distdbg.runtime.tuning.profile import Profile

_FORMAT = 1
_MOST_NBYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Machine:
    """What a measurement holds for."""

    cpu: str
    cores: int
    kernel: str
    version: str

    @classmethod
    def here(cls) -> Machine:
        """This one, or what its container has of it."""
        return cls(_cpu_model(), len(machine_cpus()), os.uname().release, __version__)

    @property
    def file_name(self) -> str:
        """The name of the machine's file; it differs where anything does."""
        return f"tuned-{hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]}.json"


@dataclass(frozen=True, slots=True)
class KeptProfile:
    """What a file holds."""

    machine: Machine
    profile: Profile
    #: Seconds per op by the names of trial and variant, for people.
    times: Mapping[str, Mapping[str, float]]
    took_s: float
    measured_at: str
    #: Whether others used the cores meanwhile.
    is_disturbed: bool = False
    path: Path | None = None


def read_kept(machine: Machine, environ: Mapping[str, str] = os.environ) -> KeptProfile | None:
    """What was measured on such a machine, if it can be used."""
    for folder in state_folders(environ):
        path = folder / machine.file_name
        try:
            kept = _from_plain(json.loads(_read_private(path)), path)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            continue
        if kept.machine == machine:
            return kept
    return None


def write_kept(kept: KeptProfile, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Keep it, whole or not at all; None where there is no place for it."""
    text = json.dumps(_to_plain(kept), indent=1) + "\n"
    for folder in state_folders(environ):
        path = folder / kept.machine.file_name
        draft = folder / f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            make_private_folder(folder)
            fd = os.open(
                draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            with open(fd, "w") as file:
                file.write(text)
            draft.rename(path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            continue
        return path
    return None


def _read_private(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
            raise PermissionError(f"{path} is not a file of uid {os.getuid()}")
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise PermissionError(f"{path} is not private")
        if facts.st_size > _MOST_NBYTES:
            raise ValueError(f"{path} is too long")
        return os.read(fd, _MOST_NBYTES)
    finally:
        os.close(fd)


def _to_plain(kept: KeptProfile) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "machine": asdict(kept.machine),
        "profile": kept.profile.to_plain(),
        "times_s": {trial: dict(times) for trial, times in kept.times.items()},
        "took_s": kept.took_s,
        "measured_at": kept.measured_at,
        "is_disturbed": kept.is_disturbed,
    }


def _from_plain(plain: object, path: Path) -> KeptProfile:
    if not isinstance(plain, dict) or plain["format"] != _FORMAT:
        raise ValueError(f"{path} has another format")
    times = {
        str(trial): {str(variant): float(seconds) for variant, seconds in of_trial.items()}
        for trial, of_trial in dict(plain["times_s"]).items()
    }
    return KeptProfile(
        Machine(**plain["machine"]),
        Profile.from_plain(plain["profile"]),
        times,
        float(plain["took_s"]),
        str(plain["measured_at"]),
        bool(plain["is_disturbed"]),
        path,
    )


@cache
def _cpu_model() -> str:
    """Read the model of the first core, with the numbers that tell machines of one name apart."""
    wanted = ("vendor_id", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    facts = []
    called = ""
    with suppress(OSError), open("/proc/cpuinfo", "rb", buffering=0) as file:
        # The first core alone: the kernel takes long to write about hundreds.
        for line in file.read(2048).decode("utf-8", "replace").split("\n\n")[0].splitlines():
            name, _, value = line.partition(":")
            if name.strip() in wanted:
                facts.append(value.strip())
            elif name.strip() == "model name":
                called = value.strip()
    return f"{called or os.uname().machine} ({' '.join(facts)})"
