"""Servers of Prometheus' family, started for one test and ended with it."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.ports import free_port

#: The first start on a busy machine takes seconds.
TIMEOUT_S = 40.0


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


@contextmanager
def started(program: str, *flags: str, address: str, ready: str, folder: Path) -> Iterator[None]:
    """The program, once it answers at the path `ready`."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    log = folder / f"{program}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, *flags],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()[-2000:]
            try:
                get(f"http://{address}{ready}")
            except OSError:
                return False
            return True

        poll_for(answers, f"{program} to answer")
        yield
    finally:
        process.terminate()
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(120)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def ask(address: str, path: str, **words: str) -> Any:
    """What Prometheus' API answers."""
    return json.loads(get(f"http://{address}/api/v1/{path}?{urlencode(words)}"))["data"]


def poll_for(is_so: Callable[[], Any], what: str) -> Any:
    """What is so, once it is."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if found := is_so():
            return found
        # Another program's time; it tells nobody.
        time.sleep(0.1)
    pytest.fail(f"waited {TIMEOUT_S} s for {what}")
