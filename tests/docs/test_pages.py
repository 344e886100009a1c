"""Every command line of every page runs, and prints what the page says.

A page is run from top to bottom in a folder of its own, which holds the programs that the page
shows. `make` is not run from within a test of `make test`; its targets have to exist.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
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
RUNNABLE = [name for name, path in PAGES.items() if any(pages.parts(path.read_text()))]


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**environ, "PATH": tools, "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.ranks
@pytest.mark.parametrize("name", RUNNABLE)
def test_a_page_does_what_it_says(name: str, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for part in pages.parts(PAGES[name].read_text()):
        if isinstance(part, pages.File):
            (tmp_path / part.name).write_text(part.text)
            continue
        program = part.line.split()[0]
        if program == "make":
            makefile = (ROOT / "Makefile").read_text()
            assert re.search(rf"^{part.line.split()[1]}:", makefile, re.MULTILINE), part.line
            continue
        if (
            shutil.which(program, path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            is None
        ):
            pytest.skip(f"{program} is not installed" + " (mpi4py)" * program.startswith("mpi"))
        done = run(part.line, tmp_path)
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
