"""Several zygotes side by side: most programs wait, for a peer or for a timeout."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from runner.diagnosis import diagnose_run
from runner.truth import FOLDER, Truth
from tests.support.ports import free_port

ZYGOTE = Path(__file__).with_name("zygote.py")

#: What may not reach the ranks from outside: it would say where they meet, and how they check.
_FOREIGN = ("DISTDBG_", "MASTER_", "TORCH_", "TORCHELASTIC_", "OMPI_", "PMI", "SLURM_", "RANK")

Result = dict[str, Any]


def run_programs(
    truths: Iterable[Truth],
    *,
    subject: str = "distdbg",
    modules: Sequence[str] = (),
    limit_s: float = 240.0,
    side_by_side: int = 4,
    env: dict[str, str] | None = None,
    on_result: Callable[[Truth, list[Result]], None] = lambda truth, results: None,
) -> dict[str, list[Result]]:
    """Run each program on fresh ranks; the results of its ranks by the program's name.

    `modules` are imported before the ranks are forked, besides the library itself.
    """
    todo = list(truths)
    outcomes: dict[str, list[Result]] = {}
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    with _zygotes([subject, *modules], min(side_by_side, len(todo))) as zygotes:
        for zygote in zygotes:
            idle.put(zygote)

        def run(truth: Truth) -> None:
            zygote = idle.get()
            try:
                outcomes[truth.name] = _run_one(zygote, truth, limit_s, env or {})
                on_result(truth, outcomes[truth.name])
            finally:
                idle.put(zygote)

        with ThreadPoolExecutor(max(len(zygotes), 1)) as threads:
            # The list() raises what a thread raised.
            list(threads.map(run, todo))
    return outcomes


def _run_one(
    zygote: subprocess.Popen[str], truth: Truth, limit_s: float, env: dict[str, str]
) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="programs-") as folder:
        meeting = {
            "DISTDBG_STORE": f"local://{folder}/store",
            "DISTDBG_TOKEN": secrets.token_hex(16),
            "DISTDBG_RUN_DIR": f"{folder}/run",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
        }
        order = {
            "program": str(truth.path),
            "ranks": truth.ranks,
            "folder": folder,
            "limit_s": limit_s,
            "env": {**meeting, **truth.env, **env},
        }
        assert zygote.stdin is not None
        assert zygote.stdout is not None
        print(json.dumps(order), file=zygote.stdin, flush=True)
        answer = zygote.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that starts the ranks died at {truth.name}")
        results: list[Result] = json.loads(answer)
        if (Path(folder) / "run").is_dir():
            results[0]["diagnosis"] = diagnose_run(Path(folder) / "run")
        return results


@contextmanager
def _zygotes(words: Sequence[str], count: int) -> Iterator[list[subprocess.Popen[str]]]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    paths = [str(FOLDER), str(FOLDER.parent.parent), environ.get("PYTHONPATH", "")]
    environ |= {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OMP_NUM_THREADS": "1",  # a thread would not survive the fork
        "OPENBLAS_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "DISTDBG_AGENT": "0",  # one per program would take the cores from the ranks
    }
    zygotes: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            zygotes.append(
                subprocess.Popen(
                    [sys.executable, str(ZYGOTE), *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environ,
                )
            )
        yield zygotes
    finally:
        for zygote in zygotes:
            zygote.kill()  # its ranks die with it
            zygote.wait()
            for pipe in (zygote.stdin, zygote.stdout):
                _close(pipe)


def _close(pipe: IO[str] | None) -> None:
    if pipe is not None:
        with suppress(BrokenPipeError):  # what was left to flush has no reader
            pipe.close()
