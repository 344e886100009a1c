"""What swallows an error before a call: handlers, suppress, and context managers of the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdbg.render.enclosing import ParsedSource, parse
from distdbg.render.swallowed import swallowers

TIMING = """\
class Timer:
    def __exit__(self, *_):
        return self.add(1)

class Plain:
    def __exit__(self, *_):
        self.n = 1
        return False

@contextmanager
def quiet():
    try:
        yield
    except OSError:
        log()

@contextmanager
def loud():
    try:
        yield
    except OSError:
        raise RuntimeError
"""


def reported(folder: Path, program: str) -> list[str]:
    """Of the line that has `all_reduce` in it."""
    (folder / "timing.py").write_text(TIMING)
    file = folder / "job.py"
    file.write_text(program)
    line = 1 + program[: program.index("all_reduce")].count("\n")

    def parsed(path: str) -> ParsedSource | None:
        read = Path(path)
        return parse(read.read_text().splitlines()) if read.exists() else None

    return swallowers(parsed, str(file), line)


TIMER = """\
from timing import Timer
def main():
    timer = Timer()
    with timer:
        x()
        all_reduce(g)
"""


@pytest.mark.parametrize(
    ("program", "note"),
    [
        (
            TIMER,
            "an error in `with timer` (line 4) skips this call "
            "where `return self.add(1)` (line 3 of timing.py) is true",
        ),
        (
            "import timing\ndef main():\n    with timing.quiet() as q:\n        x()\n        all_reduce(g)\n",
            "an error in `with timing.quiet() as q` (line 3) skips this call "
            "by `except OSError` (line 14 of timing.py)",
        ),
        (
            "with suppress(OSError):\n    x()\n    all_reduce(g)\n",
            "an error in `with suppress(OSError)` (line 1) skips this call",
        ),
        (
            "try:\n    x()\n    all_reduce(g)\nexcept KeyError as e:\n    pass\n",
            "an error caught by `except KeyError as e` (line 4) skips this call",
        ),
    ],
    ids=["a value of __exit__", "a generator", "suppress", "except"],
)
def test_what_swallows_an_error_is_told_with_its_line(
    tmp_path: Path, program: str, note: str
) -> None:
    assert reported(tmp_path, program) == [note]


@pytest.mark.parametrize(
    "program",
    [
        TIMER.replace("Timer", "Plain"),
        TIMER.replace("        x()\n", ""),
        "import timing\nwith timing.loud():\n    x()\n    all_reduce(g)\n",
        "with unknown():\n    x()\n    all_reduce(g)\n",
        "try:\n    x()\n    all_reduce(g)\nexcept KeyError:\n    raise\n",
        "try:\n    x()\n    all_reduce(g)\nexcept KeyError:\n    sys.exit(1)\n",
        "try:\n    x()\nexcept KeyError:\n    all_reduce(g)\n",
        "with timer:\n    x()\n    all_reduce(g)\n",
    ],
    ids=[
        "returns False", "nothing before", "raises", "unknown", "raises again", "exits", "in the handler",
        "made elsewhere",
    ],
)  # fmt: skip
def test_what_hands_an_error_on_is_not_told(tmp_path: Path, program: str) -> None:
    assert reported(tmp_path, program) == []
