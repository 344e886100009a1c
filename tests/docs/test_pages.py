"""Every command line of every page runs, and prints what the page says.

A page is run from top to bottom in a folder of its own, which holds the programs that the page
shows. `make` is not run from within a test of `make test`; its targets have to exist.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.leftovers import JobMark, find_marked, new_mark

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
FOUND = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = {str(path.relative_to(ROOT)): path for path in FOUND if "_build" not in path.parts}


def load_pages() -> ModuleType:
    # Tests are no package: a neighbour is imported by its path.
    spec = importlib.util.spec_from_file_location(
        "docs_pages", Path(__file__).with_name("pages.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pages = load_pages()
#: Programs that a page may use, and the mark of what they come with.
COMES_WITH = {
    "mpiexec": pytest.mark.mpi,
    "torchfrtrace": pytest.mark.torch,
    "torchrun": pytest.mark.torch,
}

#: What a newcomer reads first; all others are slow.
FIRST = "README.md"


def runnable():
    for name, path in PAGES.items():
        lines = [p.line for p in pages.parts(path.read_text()) if isinstance(p, pages.Command)]
        if lines:
            used = {program_of(line) for line in lines} & COMES_WITH.keys()
            marks = [COMES_WITH[program] for program in used]
            yield pytest.param(name, marks=marks if name == FIRST else [*marks, pytest.mark.slow])


def program_of(line: str) -> str:
    """The first word that is not the setting of a variable."""
    return next(word for word in line.split() if not re.match(r"[A-Z_]+=", word))


def where(program: str) -> str | None:
    if program in ("for", "until"):
        return "bash"
    return shutil.which(program, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def mark() -> Iterator[JobMark]:
    """Tells the processes of a page; what it leaves running ends with it."""
    mark = new_mark()
    yield mark
    for pid in find_marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def run(line: str, folder: Path, mark: JobMark) -> subprocess.CompletedProcess[str]:
    # Unbuffered, lines of several ranks would mix; the tests of ranks need no agent, the pages do.
    ours = ("PYTEST", "PYTHONUNBUFFERED", "DISTDBG_AGENT")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**environ, **mark.environment, "PATH": path, "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,  # a busy machine imports torch for a minute
        check=False,
    )


@pytest.mark.ranks
@pytest.mark.timeout(900)  # a page starts up to six jobs of torch
@pytest.mark.parametrize("name", list(runnable()))
def test_a_page_does_what_it_says(name: str, tmp_path: Path, mark: JobMark) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for part in pages.parts(PAGES[name].read_text()):
        if isinstance(part, pages.File):
            (tmp_path / part.name).write_text(part.text)
            continue
        program = program_of(part.line)
        if program == "make":
            makefile = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{part.line.split()[1]}:", makefile, re.MULTILINE), part.line
            continue
        if where(program) is None:
            pytest.skip(f"{program} is not installed")
        done = run(part.line, tmp_path, mark)
        if part.output:
            assert re.fullmatch(part.pattern(), done.stdout), f"$ {part.line}\n{done.stdout}"
        else:
            assert done.returncode == 0, f"$ {part.line}\n{done.stdout}"


def test_every_link_between_pages_leads_to_a_file() -> None:
    broken = []
    for name, path in PAGES.items():
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
            if not (path.parent / target).exists():
                broken.append((name, target))
    assert not broken


def test_a_console_block_is_split_into_commands_and_their_output() -> None:
    [first, second] = pages.commands("$ one \\\n  more\n$ two\nsaid 1.5 s\n...\nend\n")
    assert first == pages.Command("one \\\n  more")
    assert second.output == ["said 1.5 s", "...", "end"]


def test_dots_stand_for_any_text_and_any_lines() -> None:
    pattern = pages.Command("x", ["took ... s", "...", "end"]).pattern()
    assert re.fullmatch(pattern, "took 1.5 s\na\nb\nend\n")
    assert re.fullmatch(pattern, "took 1.5 s\nend\n")
    assert not re.fullmatch(pattern, "took 1.5 s\na\n")
