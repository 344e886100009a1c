"""Metrics as a file in a folder that node_exporter's textfile collector reads.

The file is `distdbg_<run>@<host>.prom`: several hosts of a run may have the same folder mounted. It is
written beside that name and moved over it, so whoever reads finds it whole or not at all; until then its
name does not end in `.prom`, which is all that the collector looks for. Everybody may read it (0644):
node_exporter is another user. So is whoever else has an account on this host; where that is not wanted,
give the folder to node_exporter's group and close it to others.

A file that nobody writes any more is still read. It has the last numbers of its job, of a short one all that
there are; whoever writes into the folder next removes those that are old.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from distdbg.errors import ConfigError
from distdbg.export.metrics.model import Metrics
from distdbg.export.metrics.text import to_text

_MODE: Final = 0o644
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9._-]")
#: Of the run, and of the host, in the name: names have 255 bytes, and a draft's has some more than these.
_MAX_CHARACTERS: Final = 80


def file_name(run: str, host: str) -> str:
    """The name for a host of a run; two have two, whatever they are called."""
    some = (run, host)
    words = [_NOT_IN_A_NAME.sub("_", one)[:_MAX_CHARACTERS] for one in some]
    if any(reported != one or not one for reported, one in zip(words, some, strict=True)):
        exactly = "/".join(f"{len(one)}:{one}" for one in some).encode("utf-8", "surrogatepass")
        words.append(hashlib.blake2b(exactly, digest_size=4).hexdigest())
    # None of these has an @.
    return f"distdbg_{'@'.join(words)}.prom"


def write_textfile(folder: Path, metrics: Metrics) -> Path:
    """Write the file of this host of the run; ConfigError where it cannot be: the old one stays."""
    path = folder / file_name(metrics.run, metrics.host)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with suppress(FileNotFoundError):
            draft.unlink()
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "wb") as file:
            # The umask may have taken it from others.
            os.fchmod(file.fileno(), _MODE)
            file.write(to_text(metrics))
        draft.replace(path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise _refused(folder, path, error) from error
    return path


def _refused(folder: Path, path: Path, error: OSError) -> ConfigError:
    why = error.strerror or str(error)
    if not folder.is_dir():
        return ConfigError(
            f"the folder for metrics {str(folder)!r} is not there: {why}",
            hint="make it, and name it to node_exporter by --collector.textfile.directory",
        )
    return ConfigError(f"the metrics file {str(path)!r} cannot be written: {why}")
