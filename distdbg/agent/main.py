"""python -m distdbg.agent --folder FOLDER --run RUN --host HOST [--orders]

Started by a launcher, or by the first rank of a host; nobody needs to start it by hand.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg import config
from distdbg.agent.host_agent import HostAgent
from distdbg.agent.launcher_orders import Attempt
from distdbg.agent.policy import read_abort_on
from distdbg.control.sockets import is_served
from distdbg.errors import ConfigError, DistError
from distdbg.launch.exports import ExportOptions, read_exports
from distdbg.record.folders import agent_socket, agents_folder
from distdbg.record.rank_list import read_ranks

#: How long an agent of the same run and host may take to leave.
_TURN_S: Final = 3.0


def main(argv: Sequence[str]) -> int:
    """Watch until it is over."""
    parser = argparse.ArgumentParser(prog="python -m distdbg.agent", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the run's folder")
    parser.add_argument("--run", required=True, help="the run's name")
    parser.add_argument("--host", required=True, help="the name of this host")
    parser.add_argument("--ranks", default="", help="the ranks of this host: 0-3,7")
    parser.add_argument(
        "--orders", action="store_true", help="read messages of a launcher from stdin"
    )
    parser.add_argument(
        "--store", default="", help="where the job's agents meet, without a launcher"
    )
    parser.add_argument("--nodes", type=int, default=1, help="hosts of the job, without a launcher")
    parser.add_argument("--node-rank", type=int, default=0, help="which of them this is")
    parser.add_argument("--round", type=int, default=0, help="how often its ranks have met before")
    parser.add_argument("--listen", metavar="HOST:PORT", help="also serve the API over TCP")
    chosen = parser.parse_args(argv)
    exports = _read_exports(has_launcher=chosen.orders)
    _be_quiet()
    agent = HostAgent(
        chosen.folder,
        chosen.run,
        chosen.host,
        expected=frozenset(read_ranks(chosen.ranks)),
        orders_fd=0 if chosen.orders else None,
        abort_on=_read_abort_on(has_launcher=chosen.orders),
    )
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: agent.leave())
    try:
        agents_folder()  # makes it
        path = agent_socket(chosen.run, chosen.host)
        _listen(agent, path, is_patient=not chosen.orders)
        if chosen.listen:
            _listen_tcp(agent, chosen.listen)
    except (DistError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        if not chosen.orders:
            agent.close()
            return error.exit_code if isinstance(error, DistError) else 1
        sys.stdout.write(f"distdbg run: {error}\n")  # the launcher's stderr
        sys.stdout.flush()
    if exports.is_asked:
        agent.export(exports)
    if chosen.nodes > 1:
        agent.steering.meet(
            Attempt(
                number=chosen.round,
                folder=chosen.folder,
                store=chosen.store,
                nodes=chosen.nodes,
                node_rank=chosen.node_rank,
            )
        )
    gc.collect()
    gc.freeze()
    agent.run()
    if not agent.has_launcher and agent.is_job_over:  # a launcher sees to it itself
        from distdbg.runtime.tuning.background import start_tuner

        start_tuner()
    return 0


def _read_abort_on(*, has_launcher: bool) -> frozenset[str]:
    try:
        return read_abort_on(config.read_str("DISTDBG_ABORT_ON"))
    except ConfigError as error:
        _complain(f"{error}\n  no verdict aborts the job\n", has_launcher=has_launcher)
        return frozenset()


def _read_exports(*, has_launcher: bool) -> ExportOptions:
    """While paths are still those of whoever started this."""
    try:
        return read_exports()
    except DistError as error:
        _complain(f"{error}\n  nothing is exported\n", has_launcher=has_launcher)
        return ExportOptions()


def _complain(text: str, *, has_launcher: bool) -> None:
    sys.stderr.write(text)
    if has_launcher:
        sys.stdout.write(f"distdbg run: {text}")  # the launcher's stderr
        sys.stdout.flush()


def _listen(agent: HostAgent, path: Path, *, is_patient: bool) -> None:
    until = time.monotonic() + _TURN_S
    while True:
        try:
            agent.server.listen_unix(path)
            return
        except ConfigError:
            if not is_patient and is_served(path):
                words = "another launcher of this job on this host has the agent that commands ask"
                raise ConfigError(words) from None
            # An agent of ranks that left a moment ago, and begin anew.
            if not is_patient or time.monotonic() >= until:
                raise
            time.sleep(0.1)


def _listen_tcp(agent: HostAgent, where: str) -> None:
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen {where!r} is not HOST:PORT")
    token = os.environ.get("DISTDBG_TOKEN", "").encode("utf-8", "surrogateescape")
    got = agent.server.listen_tcp(host.strip("[]"), int(port), token)
    sys.stderr.write(f"listening on {host}:{got}\n")


def _be_quiet() -> None:
    """Hold nothing of whoever started this: no folder, no pipe, no place in its queue for memory."""
    os.chdir("/")
    os.umask(0o077)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):  # the one that listed the folder
                os.close(int(name))
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # of a path that is no text here, too
