"""The reference pages made from the source are those that the source makes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from distdbg import config
from distdbg.launch.environment import RanksStart, rank_environment
from distdbg.launch.flag_table import FLAGS
from distdbg.launch.options import RunOptions
from distdbg.launch.rendezvous.round import NodeFacts

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_current(generate: ModuleType) -> None:
    assert generate.stale() == [], "run `make docs`"


def test_every_variable_that_is_named_anywhere_is_in_the_table() -> None:
    known = {name for v in config.VARIABLES for name in (v.name, *v.aliases)}
    known |= {name for flag in FLAGS for name in flag.variables}
    named: dict[str, set[str]] = {}
    for folder, pattern in (("distdbg", "*.py"), ("native", "*.[ch]pp"), ("docs", "*.md")):
        for path in (ROOT / folder).rglob(pattern):
            for name in re.findall(r"\bDISTDBG_[A-Z0-9_]*[A-Z0-9]\b", path.read_text()):
                named.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    # Macros and options of the build look the same, but nobody sets them in the environment.
    build = set(re.findall(r"DISTDBG_[A-Z0-9_]+", (ROOT / "CMakeLists.txt").read_text()))
    for path in (ROOT / "native").rglob("*.[ch]pp"):
        build |= set(re.findall(r"#define (DISTDBG_[A-Z0-9_]+)", path.read_text()))
    unknown = {name: places for name, places in named.items() if name not in known | build}
    assert not unknown


def test_every_variable_of_the_table_is_read_somewhere() -> None:
    sources = [path for path in (ROOT / "distdbg").rglob("*.py") if path.name != "config.py"]
    text = "".join(path.read_text() for path in sources)
    assert [v.name for v in config.VARIABLES if v.name not in text] == []


def test_the_page_names_all_that_a_rank_is_told(generate: ModuleType) -> None:
    options = RunOptions(script="train.py", nproc=2, virtual_local_rank=True)
    start = RanksStart(
        nodes=(NodeFacts(name="a", addr="a", host="a", nproc=2, role="default"),),
        node_rank=0,
        restarts=0,
        run="run",
        folder=Path("/run/attempt_0"),
        host="a",
        store="tcp://a:1/ranks",
        token="secret",
        master_addr="a",
        master_port=1,
    )
    reported = rank_environment(options, start, 0, environ={}, error_file=Path("/run/error.json"))
    named = re.findall(r"`([A-Z_]+)`", " ".join(names for names, _ in generate.RANK_VARIABLES))
    assert sorted(named) == sorted(reported)
