"""Reads the runnable parts of a Markdown page.

```console              commands after `$ `; what follows is their output, where a line `...`
                        stands for any lines and `...` in a line for any text
```python               a block whose first line is `# name.py` is that file
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w/]+\.py)\n")


@dataclass(frozen=True, slots=True)
class File:
    """A program that a page shows."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command line, and what the page says it prints."""

    line: str
    output: list[str] = field(default_factory=list)

    def pattern(self) -> str:
        """A regular expression for all of the output."""
        lines = ["(?:.*\n)*?" if line == "..." else _line_pattern(line) for line in self.output]
        return "".join(lines)


def _line_pattern(line: str) -> str:
    return ".*?".join(re.escape(part) for part in line.split("...")) + "\n"


def parts(text: str) -> Iterator[File | Command]:
    """Files and commands of a page in their order."""
    for language, body in FENCE.findall(text):
        if language == "python" and (match := FILE_NAME.match(body)):
            yield File(match[1], body)
        elif language == "console":
            yield from commands(body)


def commands(body: str) -> Iterator[Command]:
    """The commands of one console block; a backslash continues a line."""
    found: list[Command] = []
    continues = False
    for line in body.splitlines():
        if continues:
            last = found.pop()
            found.append(Command(f"{last.line}\n{line}"))
        elif line.startswith("$ "):
            found.append(Command(line[2:]))
        else:
            found[-1].output.append(line)
            continue
        continues = line.endswith("\\")
    yield from found
