"""The name of this host in records, file names and messages."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from distdbg import config


def host_name(environ: Mapping[str, str] | None = None) -> str:
    """DISTDBG_HOST, else the system's own name; fit to be a part of a file name."""
    environ = os.environ if environ is None else environ
    name = str(config.read_setting("DISTDBG_HOST", environ) or socket.gethostname())
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:63] or "localhost"
