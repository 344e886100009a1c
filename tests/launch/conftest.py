"""`start_job` starts `distdbg run`; after the test nothing of the job may be there any more."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from distdbg.launch.memory import locate_cgroup
from tests.launch.launcher_nodes import QUICK, MakeNodes, Node, Options
from tests.support import ports
from tests.support.jobs import RunningJob, running


@pytest.fixture
def job_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="job-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def start_job(job_folder: Path) -> Iterator[Callable[..., RunningJob]]:
    jobs: list[RunningJob] = []
    with ExitStack() as stack:

        def start(*argv: str, **how: Any) -> RunningJob:
            job = stack.enter_context(running(argv, job_folder, **how))
            jobs.append(job)
            return job

        yield start
        # Of others, a test has failed.
        over = [job for job in jobs if job.process.poll() is not None]
        left = [line for job in over for line in job.leftovers()]
    if left:
        pytest.fail("the job left behind\n  " + "\n  ".join(left), pytrace=False)


@pytest.fixture
def write_script(tmp_path: Path) -> Callable[[str], str]:
    return partial(_write, tmp_path)


def _write(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return str(path)


@pytest.fixture
def free_port() -> int:
    return ports.free_port()


@pytest.fixture
def make_cgroup() -> Iterator[Callable[[int], Path]]:
    """Makes a memory cgroup of so many bytes below this process's own, of version 1 or 2."""
    with ExitStack() as stack:
        yield lambda nbytes: stack.enter_context(_cgroup(nbytes))


@contextmanager
def _cgroup(nbytes: int) -> Iterator[Path]:
    own = locate_cgroup(
        Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
    )
    if own is None:
        pytest.skip("this kernel has no memory cgroup mounted")
    folder = own / f"distdbg-test-{secrets.token_hex(4)}"
    try:
        folder.mkdir()
    except OSError as error:
        whose = "this kernel lets nobody" if os.getuid() == 0 else "this user may not"
        pytest.skip(f"{whose} make a cgroup in {own}: {error.strerror}")
    try:
        limits = {"memory.limit_in_bytes": nbytes, "memory.max": nbytes}
        rest = {"memory.memsw.limit_in_bytes": nbytes, "memory.swap.max": 0}
        for name, value in (limits | rest).items():
            with suppress(OSError):
                if (folder / name).exists():
                    (folder / name).write_text(str(value))
        if not any((folder / name).exists() for name in limits):
            pytest.skip(f"the memory controller is not passed on below {own}")
        yield folder
    finally:
        deadline = time.monotonic() + 30.0
        while folder.exists():
            with suppress(OSError):  # busy until the last of it has been waited for
                folder.rmdir()
            assert time.monotonic() < deadline, f"{folder} cannot be removed"
            time.sleep(0.01)


@pytest.fixture
def make_nodes() -> Iterator[MakeNodes]:
    made: list[Node] = []

    def make(count: int, **options: Any) -> list[Node]:
        options.setdefault("rdzv_conf", QUICK)
        options.setdefault("rdzv_port", ports.free_port())
        is_static = options.get("rdzv_backend") == "static"
        nodes = [
            Node(
                f"n{len(made) + index}",
                Options(**options, node_rank=index if is_static else 0),
            )
            for index in range(count)
        ]
        made.extend(nodes)
        return nodes

    yield make
    for node in made:
        node.rendezvous.interrupt()
    for node in reversed(made):  # the first one serves
        node.leave()
