"""What the agents of a job export, and where: from flags and variables, checked before there are ranks.

    DISTDBG_METRICS          PORT of 127.0.0.1, or HOST:PORT;  --metrics-port, --metrics-address
    DISTDBG_METRICS_FILE     the folder of a text file;        --metrics-file
    DISTDBG_METRICS_PUSH     the URL of a Pushgateway;         --metrics-push
    DISTDBG_OTLP             what goes to a collector;         --otlp

An agent reads the variables; the launcher sets them from its flags. Without
exports the agent loads none of it.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from distdbg import config
from distdbg.errors import ConfigError, UsageError
from distdbg.launch.endpoint import parse_endpoint

LOOPBACK: Final = "127.0.0.1"
SIGNALS: Final = ("traces", "metrics", "logs")
_PORT: Final = re.compile(r"[0-9]{1,9}")
_METRICS, _FILE, _PUSH = "DISTDBG_METRICS", "DISTDBG_METRICS_FILE", "DISTDBG_METRICS_PUSH"
_END_S: Final = "DISTDBG_EXPORT_END_S"
_MAX_END_S: Final = 3600
_TOKEN_FILE, _USERS, _OTLP = "DISTDBG_METRICS_TOKEN_FILE", "DISTDBG_METRICS_USERS", "DISTDBG_OTLP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """What is asked for; nothing is the default."""

    listen: tuple[str, int] | None = None
    """Where metrics are served; port 0: any free one."""
    folder: Path | None = None
    """For the text file."""
    push: str | None = None
    token_file: Path | None = None
    users: tuple[str, ...] = tuple(config.read_str(_USERS, {}).split(","))
    """The users that may read over a loopback address without the token, beside the job's own."""
    signals: frozenset[str] = frozenset()
    """What is sent to a collector."""

    @property
    def is_asked(self) -> bool:
        return bool(self.listen or self.folder or self.push or self.signals)

    @property
    def is_pushed(self) -> bool:
        """Whether something has still to go out when the job is over."""
        return bool(self.folder or self.push or self.signals)

    def environment(self) -> dict[str, str]:
        """What says the same to an agent."""
        reported: dict[str, str] = {}
        if self.listen is not None:
            host, port = self.listen
            reported[_METRICS] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self.folder is not None:
            reported[_FILE] = str(self.folder)
        if self.push is not None:
            reported[_PUSH] = self.push
        if self.token_file is not None:
            reported[_TOKEN_FILE] = str(self.token_file)
        if self.signals:
            reported[_OTLP] = ",".join(signal for signal in SIGNALS if signal in self.signals)
        return reported


def read_exports(
    environ: Mapping[str, str] | None = None,
    *,
    port: int | None = None,
    address: str | None = None,
    folder: str | None = None,
    push: str | None = None,
    otlp: str | None = None,
) -> ExportOptions:
    """What the variables say; a flag that is given wins. UsageError or ConfigError names what is wrong."""
    users = config.read_str(_USERS, environ)
    token_file = config.read_setting(_TOKEN_FILE, environ)
    exports = ExportOptions(
        listen=_read_listen(port, address, config.read_setting(_METRICS, environ)),
        folder=_read_path(folder or config.read_setting(_FILE, environ)),
        push=_read_push(push or config.read_setting(_PUSH, environ)),
        token_file=_read_path(token_file),
        users=tuple(filter(None, (user.strip() for user in users.split(",")))),
        signals=_read_signals(otlp or config.read_setting(_OTLP, environ)),
    )
    for name in ("DISTDBG_OTLP_SLOW_S", "DISTDBG_OTLP_SPANS_PER_S"):
        if exports.signals:
            config.read_float(name, environ)  # what is no such number is told before the job begins
    if exports.is_asked and not 0 <= config.read_float(_END_S, environ) <= _MAX_END_S:
        raise ConfigError(
            f"the variable {_END_S} is not a number of seconds from 0 to {_MAX_END_S}"
        )
    if exports.listen is not None and not is_loopback(exports.listen[0]) and not token_file:
        raise ConfigError(
            f"metrics are not served at {exports.listen[0]} without a token: other hosts reach it",
            hint=f"{_TOKEN_FILE} names a file, private to you, with the token that a scraper shows",
        )
    return exports


def is_loopback(host: str) -> bool:
    """Whether only processes of the same host reach an address; by its text, nobody is asked."""
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    return False


def check_here(exports: ExportOptions) -> None:
    """Whether this host can do it: what is known to fail is said before a rank is started. ConfigError."""
    if exports.listen is not None:
        if exports.token_file is not None:
            from distdbg.runtime.rendezvous.token import read_token

            read_token(exports.token_file, variable=_TOKEN_FILE)
        _check_address(*exports.listen)
    if exports.folder is not None and not (
        exports.folder.is_dir() and os.access(exports.folder, os.W_OK | os.X_OK)
    ):
        raise ConfigError(
            f"metrics cannot be written into {exports.folder}: no folder that can be written",
            hint="--metrics-file names the folder that node_exporter's textfile collector reads",
        )


def _check_address(host: str, port: int) -> None:
    """Bind it for a moment. That somebody has the port is no fault: another is taken then."""
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        family, _, _, _, address = socket.getaddrinfo(host, port, type=kind, flags=flags)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        hint = None
        if error.errno == errno.EACCES:
            hint = "ports below 1024 need root; 9400 is a good choice"
        raise ConfigError(
            f"metrics cannot be served at {where}: {error.strerror or error}", hint=hint
        ) from error


def _read_listen(port: int | None, address: str | None, variable: object) -> tuple[str, int] | None:
    if port is not None and address is not None:
        raise UsageError(
            "--metrics-port and --metrics-address exclude each other: the address has a port",
            hint=f"--metrics-port serves at {LOOPBACK}",
        )
    if port is not None:
        return LOOPBACK, _port("--metrics-port", str(port))
    name, text = ("--metrics-address", address) if address is not None else (_METRICS, variable)
    if text is None:
        return None
    if _PORT.fullmatch(str(text)):
        return LOOPBACK, _port(name, str(text))
    host, found = parse_endpoint(name, str(text))
    if found is None:
        raise UsageError(f"{name}={text!r} has no port; expected HOST:PORT")
    return host, found


def _port(name: str, text: str) -> int:
    if not _PORT.fullmatch(text) or int(text) > 65535:
        raise UsageError(f"{name}={text}: a port is a number from 0 (any free one) to 65535")
    return int(text)


def _read_path(text: object) -> Path | None:
    return None if text is None else Path(str(text)).expanduser().absolute()


def _read_push(text: object) -> str | None:
    if text is None:
        return None
    try:
        parts = urlsplit(str(text))
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # ValueError for one that is none
    except ValueError:
        is_url = False
    if not is_url:
        # Not shown: there may be a password in it.
        raise UsageError(
            "the URL of the Pushgateway is not valid; expected http://HOST:PORT",
            details=[f"it was given by --metrics-push or {_PUSH}"],
        )
    return str(text)


def _read_signals(text: object) -> frozenset[str]:
    if text is None:
        return frozenset()
    words = {word.strip().lower() for word in str(text).split(",")} - {"", "none"}
    unknown = sorted(words.difference(SIGNALS, ("all",)))
    if unknown:
        raise UsageError(
            f"--otlp or {_OTLP}: unknown signal {unknown[0]!r:.40}",
            hint=f"expected any of {', '.join(SIGNALS)}; or all, none",
        )
    return frozenset(SIGNALS) if "all" in words else frozenset(words)
