"""`distdbg exporter`: metrics of runs that are over or have no agent that serves them, for Prometheus.

no RUN    all running jobs of this user on this host, and the newest 16 runs that are over
RUN       these: a run by its name or the beginning of it, or its folder

Each sample has the label `run`. /sd says where the agents of this user on this host serve theirs.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from distdbg.cli.chosen_run import find_run
from distdbg.errors import ConfigError, RecordError, UsageError
from distdbg.launch.exports import LOOPBACK, ExportOptions, check_here, read_exports

PORT: Final = 9400


def main(argv: Sequence[str]) -> int:
    """Serve until SIGINT or SIGTERM, or print once."""
    parser = argparse.ArgumentParser(
        prog="distdbg exporter",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="*", metavar="RUN", help="which; see above")
    parser.add_argument(
        "--port", type=int, default=PORT, help=f"{PORT} when not given, 0: any free one"
    )
    parser.add_argument(
        "--address",
        default=LOOPBACK,
        metavar="HOST",
        help=f"{LOOPBACK} when not given; any other needs DISTDBG_METRICS_TOKEN_FILE",
    )
    parser.add_argument(
        "--once",
        metavar="FILE",
        help="write them into FILE, in place of what is there, - for stdout, and that is all",
    )
    chosen = parser.parse_args(argv)
    folders = [_find(text) for text in chosen.runs]
    if chosen.once is not None:
        return _write(folders, chosen.once)
    if not 0 <= chosen.port <= 65535:
        raise UsageError(f"--port {chosen.port}: a port is a number from 0 (any free one) to 65535")
    where = f"[{chosen.address}]" if ":" in chosen.address else chosen.address
    exports = read_exports(os.environ, address=f"{where}:{chosen.port}")
    check_here(exports)
    return _serve(folders, exports)


def _find(text: str) -> Path:
    folder = find_run(text)
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder of a run")
    return folder.absolute()


def _write(folders: Sequence[Path], name: str) -> int:
    from distdbg.export.exporter.runs import Runs
    from distdbg.export.metrics.text import to_text
    from distdbg.export.outlets.targets import Neighbours
    from distdbg.export.output import SHARED, write_file

    neighbours = Neighbours()
    if not folders:
        neighbours.look()
    runs = Runs(folders, neighbours=neighbours)
    try:
        metrics = runs.metrics() or ()
    finally:
        runs.close()
    if folders and not metrics:
        named = ", ".join(str(folder) for folder in folders)
        raise RecordError(f"{named}: there are no records, or none that can be read")
    text = to_text(*metrics)
    if name == "-":
        sys.stdout.write(text.decode())
        return 0

    def write(output: BinaryIO) -> None:
        output.write(text)

    # Whoever collects it may be another user.
    write_file(Path(name), write, force=True, flag="--once ", mode=SHARED)
    return 0


def _serve(folders: Sequence[Path], exports: ExportOptions) -> int:
    from distdbg.export.exporter.pages import MetricsExporter

    end = threading.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: end.set())
    try:
        exporter = MetricsExporter(folders, exports)
    except OSError as error:
        assert exports.listen is not None
        from distdbg.runtime.store.holder import holder_of

        host, port = exports.listen
        raise ConfigError(
            f"metrics cannot be served at {host}:{port}: {error.strerror or error}",
            details=[f"the port is held by {holder_of(port)}"] if port else (),
            hint="--port takes another one",
        ) from error
    try:
        sys.stderr.write(f"metrics: {exporter.scheme}://{exporter.address}/metrics\n")
        sys.stderr.flush()
        while not end.wait(3600.0):
            pass
    finally:
        exporter.close()
    return 0
