"""Addresses of agents on the command line, parsed. Pure; `ways.py` connects to them.

RUN                            a run of this user on this host, by its name or a prefix of it
HOST:PORT                      an agent that listens on TCP, by the run's token
ssh://[USER@]HOST[:PORT][/RUN] a run of the user on another host, through ssh (`ssh.py`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from distdbg.errors import UsageError

_TCP: Final = re.compile(r"(?:\[([\w.:%-]+)\]|([\w.-]+)):([0-9]{1,5})")
#: Nothing that ssh could take for an option, or a shell for more than a word.
_SSH: Final = re.compile(r"(?:([\w.-]+)@)?(?:\[([\w.:%]+)\]|([\w.-]+))(?::([0-9]{1,5}))?(?:/(.*))?")


@dataclass(frozen=True, slots=True)
class LocalAddress:
    """A run on this host."""

    run: str | None


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """An agent that listens."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SshAddress:
    """A run on a host that ssh knows."""

    host: str
    user: str | None = None
    port: int | None = None
    run: str | None = None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        port = f":{self.port}" if self.port else ""
        return f"ssh://{user}{f'[{self.host}]' if ':' in self.host else self.host}{port}"


Address = LocalAddress | TcpAddress | SshAddress


def parse_address(text: str | None) -> Address:
    """UsageError for what begins as an address of a kind and is none."""
    if text is None:
        return LocalAddress(None)
    if text.startswith("ssh://"):
        found = _SSH.fullmatch(text.removeprefix("ssh://"))
        if found is None or any((part or "").startswith("-") for part in found.groups()):
            raise UsageError(f"{text!r} is not valid; expected ssh://[USER@]HOST[:PORT][/RUN]")
        user, bracketed, host, port, run = found.groups()
        number = None if port is None else _port(text, port)
        return SshAddress(bracketed or host, user, number, (run or "").strip("/") or None)
    if "://" in text:
        raise UsageError(
            f"{text!r} is of a kind that is not known",
            hint="write RUN, HOST:PORT or ssh://[USER@]HOST[:PORT][/RUN]",
        )
    found = _TCP.fullmatch(text)
    if found is not None:
        return TcpAddress(found[1] or found[2], _port(text, found[3]))
    return LocalAddress(text)


def _port(text: str, port: str) -> int:
    if not 0 < int(port) <= 65535:
        raise UsageError(f"{text!r}: the port is from 1 to 65535")
    return int(port)
