"""The docstring of each package lists its modules, so that a reader finds a file by its package alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "distdbg"
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py"))
#: At the top the interesting modules are packages; those beside them have the names of torch's modules.
_OF_TORCH = {"device_mesh", "distributed_c10d", "multiprocessing", "run", "exporter"}
_PLAIN = {"command", "config", "count_argument", "errors"}


def modules_of(package: Path) -> set[str]:
    files = {path.stem for path in package.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in package.glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT.parent)))
def test_a_package_names_each_of_its_modules(package: Path) -> None:
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    listed = set(re.findall(r"[a-z_][a-z_0-9]*", text))
    lacks = modules_of(package) - listed
    if package == ROOT:
        lacks -= _OF_TORCH | _PLAIN
    assert not lacks, f"{package.name}: the docstring of __init__.py does not name {sorted(lacks)}"


@pytest.mark.parametrize(
    "package", PACKAGES[1:], ids=lambda path: str(path.relative_to(ROOT.parent))
)
def test_a_package_lists_no_module_that_is_gone(package: Path) -> None:
    """Of lines such as 'name   what it holds'."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    rows = re.findall(r"^([a-z_][a-z_0-9]*)(?:\.py)? {2,}\S", text, re.MULTILINE)
    gone = {name for name in rows if rows} - modules_of(package)
    assert not gone, f"{package.name}: the docstring of __init__.py lists {sorted(gone)}"


@pytest.mark.parametrize("folder", ["core", "bindings"])
def test_the_list_of_the_core_names_each_of_its_files(folder: str) -> None:
    native = ROOT.parent / "native"
    files = {path.stem for path in (native / folder).glob("*.[ch]pp")}
    everywhere = {path.stem for path in native.glob("*/*.[ch]pp")}
    listed = set(re.findall(r"`([a-z_0-9]+)`", (native / "README.md").read_text()))
    assert not files - listed, "native/README.md does not name these"
    no_files = {"core", "bindings", "tests"}
    assert not listed - everywhere - no_files, "native/README.md names these, which are gone"
