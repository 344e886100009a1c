"""Options, marks and the checks that follow every test: a test leaves nothing behind.

`--run-slow` runs what is marked slow. `--no-skips` turns each skip into a failure, but for those that need a
GPU, another kernel or another user: for the places that are supposed to have everything.
"""

from __future__ import annotations

import gc
import glob
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from distdbg.record.folders import is_live_run, list_runs
from distdbg.testing import run_ranks
from distdbg.testing.fork_server import fork_servers
from distdbg.testing.leaks import find_leaks, take_holdings
from tests import left_out
from tests.at_once import AtOnce
from tests.support.network import why_not

# A busy machine may take any time for an example, or to make one up.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")

_TEMP = pytest.StashKey[str]()
#: Folders whose tests all need what the folder is named after.
_NEEDS = ("torch", "mpi", "gpu", "chromium", "prometheus")
#: Nobody sets the first two; Python ignores the others by itself, and gives them back to its children.
_NOT_DEFAULT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run tests marked slow as well")
    parser.addoption("--no-skips", action="store_true", help="fail instead of skip")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # nohup, a shell's `&`, service managers and xdist have signals ignored or blocked; children inherit it.
    for signum in signal.valid_signals() - _NOT_DEFAULT:
        if signal.getsignal(signum) == signal.SIG_IGN:
            is_int = signum == signal.SIGINT
            signal.signal(signum, signal.default_int_handler if is_int else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    # The records of the tests' ranks: not among the runs of whoever runs them. Short paths: the name of a
    # socket has at most 107 characters. So workers have theirs beside it.
    is_worker = hasattr(config, "workerinput")
    if is_worker:
        temp = f"{tempfile.gettempdir()}-{config.workerinput['workerid']}"
        os.mkdir(temp, 0o700)
    else:
        temp = tempfile.mkdtemp(prefix="distdbg-tests-")
    config.stash[_TEMP] = temp
    os.environ["TMPDIR"] = tempfile.tempdir = temp
    config.option.basetemp = config.option.basetemp or os.path.join(temp, "t")
    # Thousands of processes that import NumPy: threads of its BLAS double what that takes.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # Thousands of ranks: only tests of the agent have one.
    os.environ["DISTDBG_AGENT"] = "0"
    # Nor does a job's end measure the machine, nor what was measured before decide what a test runs.
    os.environ["DISTDBG_TUNE"] = "off"
    if not is_worker:
        config.pluginmanager.register(AtOnce(config))
    if is_worker or not config.getoption("numprocesses"):  # else others run the tests
        # Both start a process at first use and keep it until the end; a test that happens to be the
        # first to use them has not left it behind.
        resource_tracker.ensure_running()
        fork_servers.warm_up()
        gc.disable()  # until all are collected: what is made until then stays to the end


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=_turn)
    skip_slow = pytest.mark.skip(reason=left_out.SLOW)
    for item in items:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in _NEEDS:
            item.add_marker(folder)
        if "ranks" in getattr(item, "fixturenames", ()):
            item.add_marker("ranks")
        if item.get_closest_marker("slow") and not config.getoption("--run-slow"):
            item.add_marker(skip_slow)


def _turn(item: pytest.Item) -> int:
    """What is refused for a word is refused in the first minute; what takes long begins early, so that no
    worker has it left alone at the end."""
    if item.nodeid.startswith("tests/hygiene/"):
        return 0
    return 2 if "/unit/" in item.nodeid else 1


def pytest_collection_finish() -> None:
    # The tests and all they import are some million objects, which stay to the end. A full collection, which
    # a caught exception that holds a thread or a file costs each time, took 0.15 s for looking at them.
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.getoption("--no-skips"):
        left_out.refuse(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    # A whole file that skips itself (importorskip) never becomes a test.
    report = yield
    if report.skipped and collector.config.getoption("--no-skips"):
        left_out.refuse(report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in left_out.say(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    fork_servers.close()
    # With those of workers that were killed.
    for folder in glob.glob(f"{config.stash[_TEMP]}*"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    return partial(run_ranks, tmp_path=tmp_path, timeout=120.0)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    fork_servers.warm_up()  # an earlier test that broke off has ended the one there was
    before = take_holdings()
    temp = request.config.stash[_TEMP]
    runs = set(list_runs(temp))
    yield
    leaks = find_leaks(before)
    # Each start of a job looks at all runs that are kept: hundreds cost it more than to load the library.
    for run in list_runs(temp):
        if run not in runs and not is_live_run(run):
            shutil.rmtree(run, ignore_errors=True)
    if leaks:
        pytest.fail("this test left behind\n  " + "\n  ".join(leaks), pytrace=False)


@pytest.fixture
def can_make_hosts() -> None:
    """For tests on hosts of their own (network namespaces, a TUN device)."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"this kernel lets nobody make hosts: {reason}")
