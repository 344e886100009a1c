"""Options, marks and the checks that follow every test: a test leaves nothing behind.

`--run-slow` runs what is marked slow. `--require=torch,mpi,gpu,chromium,tmux,prometheus,node` turns the skip
of a test for a missing one of these into a failure, for the places that are supposed to have them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from distdbg.testing import run_ranks
from distdbg.testing.fork_server import fork_servers
from distdbg.testing.leaks import find_leaks, take_holdings

REQUIRABLE = ("torch", "mpi", "gpu", "chromium", "tmux", "prometheus", "node")
_TEMP = pytest.StashKey[str]()
#: How a skip for something missing reads, as opposed to a test that does not fit its parameters.
MISSING = re.compile(r"not installed|could not import|No module named|not available|is missing")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run tests marked slow as well")
    parser.addoption(
        "--require",
        default="",
        metavar="LIST",
        help=f"fail instead of skip where one of these is missing: {','.join(REQUIRABLE)}",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Whoever runs this in the background has Ctrl-C ignored, and all its children as well.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    # The records of the tests' ranks: not among the runs of whoever runs them.
    config.stash[_TEMP] = tempfile.mkdtemp(prefix="distdbg-tests-")
    os.environ["TMPDIR"] = tempfile.tempdir = config.stash[_TEMP]
    # Thousands of processes that import NumPy: threads of its BLAS double what that takes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Thousands of ranks: only tests of the agent have one.
    os.environ["DISTDBG_AGENT"] = "0"
    # multiprocessing starts this process at first use and keeps it until the end; a test that
    # happens to be the first to use it has not left it behind.
    resource_tracker.ensure_running()
    fork_servers.warm_up()  # the same
    for name in _required(config):
        if name not in REQUIRABLE:
            raise pytest.UsageError(f"--require knows {', '.join(REQUIRABLE)}, not {name!r}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    skip_slow = pytest.mark.skip(reason="slow; run with --run-slow")
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in REQUIRABLE:
            item.add_marker(folder)
        if "ranks" in getattr(item, "fixturenames", ()):
            item.add_marker("ranks")
        if item.get_closest_marker("slow") and not config.getoption("--run-slow"):
            item.add_marker(skip_slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marks = [name for name in _required(item.config) if item.get_closest_marker(name)]
    if report.skipped and marks and MISSING.search(str(report.longrepr)):
        report.outcome = "failed"
        report.longrepr = f"skipped, but --require={','.join(marks)} was given: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    # A whole file that skips itself (importorskip) never becomes a test.
    report = yield
    for name in _required(collector.config):
        if report.skipped and collector.path.is_relative_to(Path(__file__).parent / name):
            report.outcome = "failed"
            report.longrepr = f"skipped, but --require={name} was given: {report.longrepr}"
    return report


def pytest_unconfigure(config: pytest.Config) -> None:
    fork_servers.close()
    shutil.rmtree(config.stash[_TEMP], ignore_errors=True)


@pytest.fixture
def ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    return partial(run_ranks, tmp_path=tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    before = take_holdings()
    yield
    leaks = find_leaks(before)
    if leaks:
        pytest.fail("this test left behind\n  " + "\n  ".join(leaks), pytrace=False)


def _required(config: pytest.Config) -> list[str]:
    return [name for name in str(config.getoption("--require")).split(",") if name]
