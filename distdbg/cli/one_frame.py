"""One frame of the dashboard on stdout, or as a picture: `distdbg top --once`."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distdbg.errors import UsageError

if TYPE_CHECKING:
    from distdbg.tui.app import TopApp


def print_frame(
    app: TopApp,
    *,
    size: tuple[int, int] | None = None,
    svg: Path | None = None,
    is_forced: bool = False,
    environ: Mapping[str, str] | None = None,
) -> int:
    """Draw it and write it; returns the exit code.

    Colours are for terminals that want them; without `size` it is the terminal's, or 120x40.
    """
    from distdbg.tui.once import draw_once

    if svg is not None:
        _refuse_to_replace(svg, is_forced=is_forced)
    if size is None:
        found = shutil.get_terminal_size((120, 40)) if sys.stdout.isatty() else (120, 40)
        size = found[0], max(found[1] - 1, 6)  # the prompt comes below
    frame = draw_once(app, size=size, picture=svg is not None)
    if svg is not None:
        try:
            svg.write_text(frame.svg, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--svg {svg}: cannot be written: {error.strerror}") from None
        sys.stderr.write(f"Wrote {svg}\n")
        return 0
    wants_colour = sys.stdout.isatty() and not (os.environ if environ is None else environ).get(
        "NO_COLOR"
    )
    text = frame.ansi if wants_colour else frame.text
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except UnicodeEncodeError:  # a terminal without these letters
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:  # a full disk
        with suppress(OSError, ValueError):
            sys.stdout.close()
        raise UsageError(f"standard output cannot be written: {error.strerror}") from None
    return 0


def _refuse_to_replace(path: Path, *, is_forced: bool) -> None:
    if path.is_dir():
        raise UsageError(f"--svg {path}: is a folder", hint="give the name of a file")
    if path.is_file() and not is_forced:
        raise UsageError(f"--svg {path} already exists", hint="--force replaces it")
    if not path.parent.is_dir():
        raise UsageError(f"--svg {path}: there is no folder {path.parent}")
