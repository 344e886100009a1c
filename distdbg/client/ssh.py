"""Connects to an agent through ssh: its socket, forwarded to a local one.

    ssh HOST 'python3 -m distdbg ps --json'         running jobs there, and their sockets
    ssh -L ours:theirs HOST 'echo ...; cat'         one child for all connections

The second ends when its standard input does, so also when this process is killed. Neither may
prompt: BatchMode, no terminal, no input.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, Self

from distdbg import config
from distdbg.client.addresses import SshAddress
from distdbg.client.agent_client import AgentClient
from distdbg.client.live_runs import LiveRun, choose_run
from distdbg.control import sockets
from distdbg.errors import DistError, DistNetworkError, UsageError
from distdbg.record.durations import duration_text

#: How long ssh may take to connect, and each of the two commands altogether.
_CONNECT_S: Final = 10
_MAX_S: Final = 30.0
_END_S: Final = 2.0
#: What the kernel takes for the path of a Unix socket, there as here.
_MAX_PATH: Final = 107
_READY: Final = b"distdbg: the way is open"
_OPTIONS: Final = (
    "BatchMode=yes",
    f"ConnectTimeout={_CONNECT_S}",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    # Our part of a connection that others share could not be ended.
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
)
_NOT_FOUND: Final = re.compile(r"not found|No such file", re.IGNORECASE)


class Tunnel:
    """One forwarded socket. Thread-safe."""

    def __init__(self, address: SshAddress, live: LiveRun, environ: Mapping[str, str]) -> None:
        assert live.socket is not None
        self.run = live.run
        self.host = live.host
        self._address = address
        self._theirs = live.socket
        self._environ = environ
        self._lock = threading.Lock()  # protects what follows
        self._child: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._folder = _short_folder()

    @classmethod
    def open(cls, address: SshAddress, environ: Mapping[str, str]) -> Self:
        """Find the run and open the way to it. DistError says what is in the way."""
        runs = _runs_of(address, environ)
        try:
            live = choose_run(runs, address.run)
        except UsageError as error:
            what = error.what.replace("on this host", "there")
            raise UsageError(
                f"{address}: {what}",
                details=error.details,
                hint="write ssh://HOST/RUN" if runs else None,
            ) from None
        if live.socket is None:
            raise UsageError(f"{address}: no agent answers for run {live.run}")
        tunnel = cls(address, live, environ)
        try:
            with tunnel._lock:
                tunnel._forward()
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def connect(self, timeout_s: float) -> AgentClient:
        """A connection through it; ssh is started again when it has ended. DistNetworkError."""
        with self._lock:
            if self._child is None or self._child.poll() is not None:
                self._end()
                self._forward()
        name = str(self._address)
        try:
            sock = sockets.connect(self._ours, timeout_s)
        except OSError as error:
            raise DistNetworkError(f"{name}: ssh has ended: {self._last_words()}") from error
        try:
            return AgentClient(sock, name, timeout_s)
        except DistNetworkError as error:
            said = self._last_words()
            if "open failed" not in said:
                raise
            raise DistNetworkError(
                f"{error.what}: {said}",
                hint="the agent has left, or sshd does not forward sockets (AllowStreamLocalForwarding)",
            ) from error

    def close(self) -> None:
        """End ssh. Idempotent."""
        with self._lock:
            self._end()
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _ours(self) -> Path:
        return self._folder / "agent.sock"

    def _forward(self) -> None:
        with suppress(FileNotFoundError):
            self._ours.unlink()
        theirs, command = _way_to(str(self._theirs))
        theirs = theirs.replace("\\", "\\\\").replace(":", "\\:")
        forward = ["-o", "ExitOnForwardFailure=yes", "-L", f"{self._ours}:{theirs}"]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the child
        try:
            self._child = subprocess.Popen(
                [*_ssh(self._address, forward), command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=dict(self._environ),
                start_new_session=True,
            )
        except OSError as error:
            raise _no_ssh(error) from error
        assert self._child.stdout is not None
        deadline = time.monotonic() + _MAX_S
        heard = b""
        while _READY not in heard:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._child.stdout], [], [], max(0.0, left_s))
            data = os.read(self._child.stdout.fileno(), 4096) if ready else b""
            heard += data
            if not data or len(heard) > 1 << 16:
                with suppress(subprocess.TimeoutExpired):
                    self._child.wait(0.5 if ready else 0.0)
                code = self._child.poll()
                said = self._last_words(all_of_it=True)
                self._end()
                raise explain(self._address, code, said)

    def _last_words(self, *, all_of_it: bool = False) -> str:
        """What ssh has said on its stderr."""
        if self._said is None:
            return ""
        size = os.fstat(self._said.fileno()).st_size
        text = os.pread(self._said.fileno(), 1 << 14, max(0, size - (1 << 14))).decode(
            "utf-8", "replace"
        )
        if all_of_it:
            return text
        lines = [line for line in text.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
            child.terminate()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._said is not None:
            self._said.close()
            self._said = None


def _way_to(theirs: str) -> tuple[str, str]:
    """A path there that a socket's address has room for, and what keeps it there."""
    ready = f"echo '{_READY.decode()}'"
    if len(os.fsencode(theirs)) <= _MAX_PATH:
        return theirs, f"{ready}; exec cat >/dev/null"
    # Nobody can know the name before, and mkdir takes none that is there.
    folder = f"/tmp/distdbg-ssh-{secrets.token_hex(16)}"
    link = f"{folder}/agent.sock"
    make = f"mkdir -m 700 {folder} && ln -s {shlex.quote(theirs)} {link} && {ready}"
    return link, f"{make}; cat >/dev/null; rm -f {link}; rmdir {folder}"


def _ssh(address: SshAddress, extra: list[str]) -> list[str]:
    options = [word for option in _OPTIONS for word in ("-o", option)]
    user = [] if address.user is None else ["-l", address.user]
    port = [] if address.port is None else ["-p", str(address.port)]
    return ["ssh", "-T", *options, *user, *port, *extra, "--", address.host]


def _runs_of(address: SshAddress, environ: Mapping[str, str]) -> list[LiveRun]:
    """The runs of the user that live there, as the distdbg there says."""
    python = config.read_str("DISTDBG_SSH_PYTHON", environ)
    try:
        done = subprocess.run(
            # Not quoted: it is for the user's shell there, and may be more than a path.
            [*_ssh(address, []), f"{python} -m distdbg ps --json"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=dict(environ),
            timeout=_MAX_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DistNetworkError(f"{address} did not answer within {duration_text(_MAX_S)}") from None
    except OSError as error:
        raise _no_ssh(error) from error
    if done.returncode:
        raise explain(address, done.returncode, done.stderr.decode("utf-8", "replace"))
    return _read_runs(address, done.stdout)


def _read_runs(address: SshAddress, output: bytes) -> list[LiveRun]:
    lines = output.decode("utf-8", "replace").splitlines()
    # What a shell says before is not meant for us.
    begin = next((at for at, line in enumerate(lines) if line.strip() == "{"), len(lines))
    try:
        found: list[dict[str, Any]] = json.loads("\n".join(lines[begin:]))["runs"]
        return [
            LiveRun(
                run=str(one["run"]),
                host=str(one["host"]),
                socket=Path(one["socket"]) if one.get("socket") else None,
            )
            for one in found
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DistNetworkError(
            f"{address}: the distdbg there does not list its running jobs",
            hint="it may be an older version",
        ) from error


def explain(address: SshAddress, code: int | None, said: str) -> DistError:
    """What it means that ssh ended with this code and these words. Pure."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if code is None:
        return DistNetworkError(f"{address} did not answer within {duration_text(_MAX_S)}")
    if code == 255 or code < 0:
        for words, what, hint in _REASONS:
            if words in said:
                return DistNetworkError(f"{address}: {what}", details=lines[-3:], hint=hint)
        return DistNetworkError(f"{address}: ssh failed" + (f": {last}" if last else ""))
    if "No module named" in said and "distdbg" in said:
        return UsageError(
            f"{address}: its Python has no distdbg",
            hint="DISTDBG_SSH_PYTHON names the Python there that has, as ~/venv/bin/python",
        )
    if code in (126, 127) or _NOT_FOUND.search(last):
        return UsageError(
            f"{address}: there is no such Python: {last}",
            hint="DISTDBG_SSH_PYTHON names the Python there, as ~/venv/bin/python",
        )
    return DistNetworkError(
        f"{address}: the command there failed with exit code {code}", details=lines[-3:]
    )


_REASONS: Final = (
    ("Could not resolve hostname", "unknown host name", None),
    (
        "Host key verification failed",
        "ssh does not know the host's key",
        "connect once by hand and check the key",
    ),
    (
        "Permission denied",
        "ssh was refused",
        "only keys that need no passphrase now are used; ssh-add, or ssh-copy-id, may help",
    ),
    ("Connection refused", "nobody answers ssh there", None),
    ("timed out", "the host does not answer", None),
    ("No route to host", "there is no way to the host", None),
    ("Network is unreachable", "there is no way to the host", None),
    (
        "forwarding",
        "the server does not forward sockets",
        "AllowStreamLocalForwarding, or --agent-listen HOST:PORT and its token",
    ),
)


def _no_ssh(error: OSError) -> DistError:
    return UsageError(f"ssh cannot be started: {error.strerror}")


def _short_folder() -> Path:
    """A private folder where the path of a socket has room."""
    folder = tempfile.mkdtemp(prefix="distdbg-ssh-")
    if len(folder) > _MAX_PATH - 40:  # ssh makes it under a longer name first
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="distdbg-ssh-", dir="/tmp")
    return Path(folder)
