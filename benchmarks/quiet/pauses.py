"""What keeps one rank busy for some seconds, in the ways of honest programs."""

from __future__ import annotations

import gc
import os
import pickle
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Pause = Callable[[float], None]


def _until(seconds: float) -> Iterator[int]:
    deadline = time.monotonic() + seconds
    count = 0
    while time.monotonic() < deadline:
        yield count
        count += 1


def sleeps(seconds: float) -> None:
    time.sleep(seconds)


def multiplies(seconds: float) -> None:
    matrix = np.ones((400, 400))
    for _ in _until(seconds):
        matrix = matrix @ matrix * 1e-3


def decomposes(seconds: float) -> None:
    """Some long calls."""
    matrix = np.random.default_rng(1).random((700, 700))
    for _ in _until(seconds):
        np.linalg.svd(matrix)


def sorts(seconds: float) -> None:
    values = np.random.default_rng(1).random(3_000_000)
    for _ in _until(seconds):
        np.sort(values)


def counts(seconds: float) -> None:
    """In pure Python."""
    words: dict[int, int] = {}
    for count in _until(seconds):
        words[count % 1000] = words.get(count % 1000, 0) + 1


def collects(seconds: float) -> None:
    """Garbage, in one call."""
    kept: list[Any] = [[] for _ in range(int(seconds * 1_500_000))]
    kept.append(kept)
    gc.collect()


def adds(seconds: float) -> None:
    """One call that lets no other thread run."""
    sum(range(int(seconds * 30_000_000)))


def pickles(seconds: float) -> None:
    rows = [{"row": row, "words": str(row)} for row in range(50_000)]
    for _ in _until(seconds):
        pickle.dumps(rows)


def writes(seconds: float) -> None:
    """A checkpoint, in some files."""
    block = os.urandom(1 << 20)
    with tempfile.TemporaryDirectory() as folder:
        for count in _until(seconds):
            with open(Path(folder) / f"part{count % 8}.bin", "wb") as file:
                file.write(block)
                file.flush()
                os.fsync(file.fileno())
            time.sleep(0.05)  # a slow disk


def runs_a_program(seconds: float) -> None:
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], check=True)


def reads_a_pipe(seconds: float) -> None:
    """A loader of another process."""
    source = f"import time; time.sleep({seconds}); print('batch')"
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as loader:
        assert loader.stdout is not None
        loader.stdout.read()


def joins(seconds: float) -> None:
    """A thread that works."""
    thread = threading.Thread(target=multiplies, args=(seconds,))
    thread.start()
    thread.join()


def awaits_a_future(seconds: float) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(writes, [seconds, seconds / 2]))


def takes_from_a_queue(seconds: float) -> None:
    """What a loader's thread puts into it."""
    batches: queue.Queue[int] = queue.Queue()
    loader = threading.Timer(seconds, batches.put, (1,))
    loader.start()
    batches.get()
    loader.join()


def imports(seconds: float) -> None:
    """A module that takes long."""
    name = f"takes_long_{random.getrandbits(40)}"
    with tempfile.TemporaryDirectory() as folder:
        text = f"import time\nend = time.monotonic() + {seconds}\n"
        text += "while time.monotonic() < end:\n    sum(range(1000))\n"
        (Path(folder) / f"{name}.py").write_text(text)
        sys.path.insert(0, folder)
        __import__(name)
        sys.path.remove(folder)


PAUSES: dict[str, Pause] = {
    pause.__name__: pause
    for pause in (
        sleeps,
        multiplies,
        decomposes,
        sorts,
        counts,
        collects,
        adds,
        pickles,
        writes,
        runs_a_program,
        reads_a_pipe,
        joins,
        awaits_a_future,
        takes_from_a_queue,
        imports,
    )
}


def is_stopped(seconds: float) -> None:
    """By SIGSTOP; who continues it is a program of its own."""
    source = f"import os, time; time.sleep({seconds}); os.kill({os.getpid()}, 18)"
    with subprocess.Popen([sys.executable, "-c", source]) as other:
        os.kill(os.getpid(), signal.SIGSTOP)
        other.wait()


_STOPPER = """
import os, random, signal, sys, time
pid, own = int(sys.argv[1]), random.Random(int(sys.argv[2]))
while os.getppid() == pid:
    time.sleep(own.uniform(0.1, 1.5))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(own.choice((0.01, 0.1, 0.3, 0.6)))
    os.kill(pid, signal.SIGCONT)
"""


@contextmanager
def stopped_now_and_then(seed: int) -> Iterator[None]:
    """Meanwhile this process is stopped wherever it is, also within ops, and goes on."""
    argv = [sys.executable, "-c", _STOPPER, str(os.getpid()), str(seed)]
    with subprocess.Popen(argv) as stopper:
        try:
            yield
        finally:
            stopper.kill()  # whoever gets here is not stopped
