"""What importing a module loads, looked at from a fresh interpreter.

import-linter sees a static graph; only sys.modules knows of lazy imports and of what a parent
package pulls in.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import distdbg

PACKAGE = Path(distdbg.__file__).parent
HEAVY = {"numpy", "ml_dtypes", "torch", "cupy", "mpi4py"}
OBSERVER_LIBRARIES = {"rich", "textual", "prometheus_client", "opentelemetry"}
NATIVE = {"distdbg._native", "distdbg.native"}


def modules_after(statement: str) -> set[str]:
    script = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def loaded_of(loaded: set[str], names: set[str]) -> set[str]:
    """Those of `names` that are in `loaded`, themselves or by a submodule."""
    return {name for name in names if any(f"{full}.".startswith(f"{name}.") for full in loaded)}


def test_importing_the_package_loads_neither_arrays_nor_the_extension() -> None:
    loaded = modules_after("import distdbg")
    assert not loaded_of(loaded, HEAVY | OBSERVER_LIBRARIES | NATIVE)


def test_a_rank_loads_no_library_of_the_observers_and_no_torch() -> None:
    # Naming one function is enough: the lazy package then imports the runtime behind it.
    statement = "import distdbg\ndistdbg.init_process_group"
    loaded = modules_after(statement)
    assert not loaded_of(loaded, OBSERVER_LIBRARIES | {"torch", "cupy", "mpi4py"})


def test_a_rank_of_a_host_loads_no_reader_of_records_and_nothing_for_gpus_before_it_needs_them() -> (
    None
):
    statement = (
        "import distdbg as dist, numpy as np\n"
        "dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(np.ones(2))\n"
        "dist.destroy_process_group()"
    )
    readers = {"entries", "reader", "columns", "batches", "rank_words", "ran_out"}
    assert not loaded_of(
        modules_after(statement),
        {f"distdbg.record.{name}" for name in readers}
        | {f"distdbg.runtime.backends.gpu.{name}" for name in ("chunks", "messages", "transfer")}
        | {"distdbg.hosts", "distdbg.follow", "distdbg.diagnose", "distdbg.runtime.backends.nccl"},
    )


def test_errors_load_only_the_standard_library() -> None:
    loaded = modules_after("import distdbg.errors")
    ours = {name for name in loaded if name.split(".")[0] == "distdbg"}
    assert ours <= {"distdbg", "distdbg.errors"}
    assert not loaded_of(loaded, HEAVY | OBSERVER_LIBRARIES)


def existing(names: list[str]) -> list[str]:
    found = {module.name for module in pkgutil.iter_modules([str(PACKAGE)])}
    return [name for name in names if name in found]


def modules_of(room: str) -> list[str]:
    """All modules of a package: most `__init__` are a docstring, and importing one shows nothing."""
    paths = (p for p in (PACKAGE / room).rglob("*.py") if p.name != "__main__.py")
    parts = (("distdbg", *p.relative_to(PACKAGE).with_suffix("").parts) for p in sorted(paths))
    return [".".join(one[:-1] if one[-1] == "__init__" else one) for one in parts]


def loaded_by(room: str, names: set[str], *, but: set[str]) -> set[str]:
    """Those of `names` that any module of a room loads, those of `but` apart."""
    imports = [f"import {module}" for module in modules_of(room) if module not in but]
    assert len(imports) + len(but) == len(modules_of(room)), "an exception that is gone"
    assert len(imports) > 1
    return loaded_of(modules_after("\n".join(imports)), names)


#: What writes a record is in the rank; timelines of millions of slices are made by columns of NumPy.
NEEDS_MORE = {"record": {"distdbg.record.writing"}, "export": set(modules_of("export/trace"))}
LIGHT = ["record", "control", "diagnose", "render", "export", "view", "hosts", "follow", "client"]
#: As the contract in pyproject.toml has them; the launcher is in both columns.
IN_A_RANK = ["runtime", "check", "ops", "log", "control", "record", "secure", "debugger"]


@pytest.mark.slow
@pytest.mark.parametrize("room", existing(LIGHT))
def test_an_observer_needs_neither_the_extension_nor_arrays(room: str) -> None:
    heavy = HEAVY | NATIVE | {"distdbg.runtime", "distdbg.torch_bridge"}
    assert not loaded_by(room, heavy, but=NEEDS_MORE.get(room, set()))


def test_reading_a_record_needs_neither_the_extension_nor_arrays() -> None:
    loaded = modules_after("from distdbg.record import folders, rank_words, reader")
    assert not loaded_of(loaded, HEAVY | NATIVE | OBSERVER_LIBRARIES | {"distdbg.runtime"})


_OBSERVING_ROOMS = [
    "diagnose",
    "render",
    "export",
    "tui",
    "agent",
    "hosts",
    "follow",
    "client",
    "view",
]
OBSERVERS = {f"distdbg.{name}" for name in _OBSERVING_ROOMS}
OBSERVING = OBSERVERS | OBSERVER_LIBRARIES | {"torch"}


@pytest.mark.slow
@pytest.mark.parametrize("room", existing(IN_A_RANK))
def test_what_runs_in_a_rank_loads_nothing_of_the_observers(room: str) -> None:
    assert not loaded_by(room, OBSERVING, but=set())


@pytest.mark.parametrize("name", existing(["launch", "testing"]))
def test_naming_the_launcher_or_the_test_tools_loads_no_observer(name: str) -> None:
    """Some of their modules tell what the diagnosis finds, and load it when they do."""
    assert not loaded_of(modules_after(f"import distdbg.{name}"), OBSERVING)


def test_the_client_of_prometheus_is_loaded_for_those_alone_who_have_it_themselves() -> None:
    ours = {"exporter.py", "export/metrics/client.py"}
    imports = re.compile(r"^\s*(?:from|import) prometheus_client\b", re.MULTILINE)
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if imports.search(path.read_text())
    }
    assert found == ours
    loaded = modules_after(
        "from distdbg.agent.metering import metering\n"
        "from distdbg.export.exporter import pages\n"
        "from distdbg.export.outlets import sending, serving"
    )
    assert not loaded_of(loaded, {"prometheus_client"})
    assert "prometheus_client" in modules_after("import distdbg.exporter")


def installed_by(requirements: list[str]) -> set[str]:
    """The distributions that these requirements install, with all that they need themselves."""
    found: set[str] = set()
    waiting = list(requirements)
    while waiting:
        requirement = waiting.pop()
        match = re.match(r"[\w.-]+", requirement)
        assert match, requirement
        name = re.sub(r"[-_.]+", "-", match[0]).lower()
        if name in found or "extra ==" in requirement:
            continue
        found.add(name)
        try:
            waiting += importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # a tool of a group that is not installed here
    return found


@pytest.mark.slow
def test_what_is_imported_has_types_where_only_build_and_lint_are_installed() -> None:
    """`make check` checks types before the tests' libraries are there."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    present = installed_by(project["project"]["dependencies"] + groups["build"] + groups["lint"])
    untyped = {
        name.removesuffix(".*")
        for override in project["tool"]["mypy"]["overrides"]
        if override.get("ignore_missing_imports")
        for name in override["module"]
    }
    imported: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module)
    providers = importlib.metadata.packages_distributions()
    missing = {
        name
        for name in imported
        if (top := name.split(".")[0]) not in sys.stdlib_module_names | {"distdbg"}
        if not any(f"{name}.".startswith(f"{known}.") for known in untyped)
        if not {provider.lower().replace("_", "-") for provider in providers.get(top, [top])}
        & present
    }
    assert not missing
