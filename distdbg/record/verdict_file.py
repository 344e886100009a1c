"""The verdict of a run in its folder: of the agent while it runs, of the launcher when it is over."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from distdbg.record.folders import VERDICT_NAME


def write_verdict_file(folder: Path, document: bytes) -> None:
    """Put it in place whole, private, or not at all: the job needs none of it."""
    draft = folder / f".{VERDICT_NAME}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, flags, 0o600), "wb") as file:
            file.write(document)
        draft.replace(folder / VERDICT_NAME)
    except OSError:  # a full disk: half a draft must not stay
        with suppress(OSError):
            draft.unlink(missing_ok=True)
