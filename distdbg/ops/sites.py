"""Call sites as text for messages: the shortest paths that are unique.

A description carries the whole path, 'runs/a/train.py:88 (step)'; one file shows as 'train.py:88
(step)', and two files of one name as 'a/train.py:88 (step)' and 'b/train.py:88 (step)'.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable
from types import FrameType

UNKNOWN = "an unknown line"

#: Folders of this package, then of libraries whose lines are none of the program's.
_folders: tuple[str, ...] = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,)


def skipped_folders() -> tuple[str, ...]:
    """The folders whose frames are no call sites."""
    return _folders


def skip_folder(folder: str) -> None:
    """Lines of this folder or file are no call sites from here on: a library calls ours for its user."""
    global _folders
    folder = folder if folder.endswith(".py") else folder.rstrip(os.sep) + os.sep
    if folder not in _folders:
        _folders += (folder,)


def shorten(sites: Iterable[str]) -> dict[str, str]:
    """Map each site to a form that names its file unmistakably among these."""
    split = {site: _split(site) for site in sites}
    paths = {path for path, _ in split.values()}
    names = {path: _name(path, paths) for path in paths}
    return {site: names[path] + line for site, (path, line) in split.items()}


def _split(site: str) -> tuple[str, str]:
    """Part 'a/b.py:88 (step)' into 'a/b.py' and ':88 (step)'; a path may hold colons and blanks."""
    bracket = site.rfind(" (")
    colon = site.rfind(":", 0, bracket if bracket >= 0 else None)
    return (site, "") if colon < 0 else (site[:colon], site[colon:])


def _name(path: str, paths: Iterable[str]) -> str:
    parts = path.split("/")
    others = [other.split("/") for other in paths if other != path]
    for count in range(1, len(parts) + 1):
        if all(other[-count:] != parts[-count:] for other in others):
            return "/".join(parts[-count:])
    return path


def call_site() -> str:
    """'/home/me/train.py:88 (step)': the innermost frame outside this package.

    For slow paths; ops take theirs from the record, in native code.
    """
    frame = _calling_frame()
    if frame is None:
        return UNKNOWN
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} ({code.co_qualname})"


def warn_at_call_site(text: str, category: type[Warning]) -> None:
    """Warn with the program's line, however deep below it this is; each line is told once, as usual."""
    frame = _calling_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
        return
    known = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__")
    warnings.warn_explicit(
        text, category, frame.f_code.co_filename, frame.f_lineno, module=name, registry=known
    )


def _calling_frame() -> FrameType | None:
    """The innermost frame outside this package; modules that are imported are no callers."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_folders) and not file.startswith("<frozen "):
            return frame
        frame = frame.f_back
    return None
