"""Options and rules that hold for every test: --run-slow, --require, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

#: What a mark needs, as it is spelled in the reason of a skip.
MODULES = {"torch": "torch", "mpi": "mpi4py", "gpu": "cupy"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-slow", action="store_true", help="run the tests marked slow, too")
    parser.addoption(
        "--require",
        default="",
        metavar="NAMES",
        help="comma-separated marks (torch,mpi,gpu) whose tests fail instead of being skipped",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--run-slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow; runs with --run-slow"))


def required(config: pytest.Config) -> list[str]:
    return [name for name in str(config.getoption("--require")).split(",") if name]


def refuse_skip(report: pytest.TestReport | pytest.CollectReport, name: str) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"--require={name}: this was about to be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    # An expected failure is reported as skipped, too; that one is no missing requirement.
    if report.skipped and not hasattr(report, "wasxfail"):
        for name in required(item.config):
            if item.get_closest_marker(name) or MODULES.get(name, name) in str(report.longrepr):
                refuse_skip(report, name)
                break
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    # A whole file that is skipped by importorskip never becomes an item.
    report = yield
    if report.skipped:
        for name in required(collector.config):
            if MODULES.get(name, name) in str(report.longrepr):
                refuse_skip(report, name)
                break
    return report


def segments() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").glob("*distdbg*")}


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    threads, files, before = set(threading.enumerate()), count_files(), segments()
    yield
    # What ends does so within moments: a joined thread may still be listed, a socket be closing.
    deadline = time.monotonic() + 2.0
    while True:
        left = {
            "threads": [t.name for t in threading.enumerate() if t not in threads],
            "processes": [p.name for p in multiprocessing.active_children()],
            "segments": sorted(segments() - before),
            "files": max(0, count_files() - files - FILES_ALLOWED),
        }
        if not any(left.values()):
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left behind: { ({k: v for k, v in left.items() if v}) }", pytrace=False)
        time.sleep(0.01)  # polls the conditions above; nothing announces them


#: Libraries open a few files for good on first use (/dev/urandom, an epoll of asyncio).
FILES_ALLOWED = 4


def count_files() -> int:
    return len(os.listdir("/proc/self/fd"))
