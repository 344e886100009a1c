"""Files of lines that several processes add to, and that are read while they do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from distdbg.record.regular_file import open_regular, read_some

T = TypeVar("T")


def append_line(path: Path, text: str) -> None:
    """Add one line to a private file. OSError when it cannot be."""
    # Without O_NONBLOCK the open of a named pipe waits for a reader.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
    fd = os.open(path, flags, 0o600)
    try:
        os.write(fd, text.encode() + b"\n")  # one write: lines of two writers do not mix
    finally:
        os.close(fd)


def read_lines(folder: Path, pattern: str) -> Iterator[bytes]:
    """The lines of the files with such names, by name; a file that cannot be read is passed over."""
    for path in sorted(folder.glob(pattern)):
        try:
            with open_regular(path) as file:
                lines = read_some(file).splitlines()
        except OSError:
            continue
        yield from lines


def read_each(folder: Path, pattern: str, parse: Callable[[bytes], T]) -> Iterator[T]:
    """What `parse` makes of the lines; one for which it raises ValueError is passed over."""
    for line in read_lines(folder, pattern):
        try:
            yield parse(line)
        except (ValueError, RecursionError):
            continue


def known_facts(cls: type[Any], text: str | bytes) -> dict[str, Any]:
    """Keep of a line of JSON what a dataclass has fields for. ValueError where it is no object."""
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    known = {field.name for field in fields(cls)}
    return {name: value for name, value in found.items() if name in known}
