"""Measures this machine without being asked: after a job, in a process that nobody waits for.

Not before or in a job: its ranks would share their cores with the measurement, which would measure them.
After the last rank of the first job on a machine the cores are free, and whoever started it has the result.
The process is nobody's child, has a session of its own and low priority, and lives for about a second. If
the host is busy then, nothing is kept, and another job's end is used, some time later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import distdbg
from distdbg.errors import ConfigError
from distdbg.runtime.rendezvous.state_folder import state_folders
from distdbg.runtime.tuning.current import is_off
from distdbg.runtime.tuning.profile_file import Machine, read_kept

#: Held by whoever measures; written by each that begins.
LOCK = "tuning.lock"
#: After an attempt that found the host busy.
_PAUSE_S = 600.0
_SHELL = "/bin/sh"


def start_tuner() -> bool:
    """Start it where it is needed; whether it was. Takes some milliseconds, and never fails."""
    with suppress(OSError, ConfigError):
        if is_off() or read_kept(Machine.here()) is not None or _was_tried_now():
            return False
        if not os.access(_SHELL, os.X_OK):
            return False
        folder = os.path.dirname(os.path.dirname(os.path.abspath(distdbg.__file__)))
        paths = [folder, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        words = [sys.executable, "-P", "-m", "distdbg.runtime.tuning.tuner"]
        # The shell ends at once, so that there is no child to wait for.
        subprocess.run(
            [_SHELL, "-c", '"$@" &', _SHELL, *words],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        return True
    return False


def _was_tried_now() -> bool:
    for folder in state_folders(os.environ):
        with suppress(OSError):
            since_s = time.time() - Path(folder, LOCK).stat().st_mtime
            if 0 <= since_s < _PAUSE_S:
                return True
    return False
