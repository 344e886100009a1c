"""Run a test function in real processes, one per rank, and explain what went wrong.

Every rank is a process in a session of its own that writes to a file, so a full pipe cannot block it
and killing it takes its children along. It is forked by a process that has imported the library and
used none of it (`fork_server`). Nothing is pickled: the rank (`fork_server_main`) imports the test's file
by path and calls a module-level function; arguments and the result are JSON. All ranks share one
deadline; who is still running then has its stacks printed (SIGUSR1, faulthandler) before it is killed.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distdbg.testing.fork_server import ForkedRank, ForkServer, fork_servers, python_path

#: What a test function takes and returns: JSON, so checked when it is encoded, not by types.
type_json = Any

#: After a rank failed unexpectedly the others get this long to notice and end by themselves.
_AFTER_FAILURE_S = 5.0
#: How long a hung rank may take to print its stacks.
_STACKS_S = 0.5
_OUTPUT_LINES = 60
#: Variables of another job; a rank that inherits one of them would try to join that job.
_FOREIGN = ("OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_", "GROUP_", "ROLE_")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankResult:
    """How one rank ended."""

    rank: int
    exit_code: int
    """As in subprocess: negative is the number of the signal that ended it."""
    hung: bool
    output: str
    value: type_json


class RanksFailed(AssertionError):
    """A rank ended otherwise than expected; the text has exit code and output of each such rank."""

    def __init__(
        self, results: list[RankResult], expected: Mapping[int, int], summary: str
    ) -> None:
        self.results = results
        self.expected = dict(expected)
        bad = [r for r in results if r.hung or r.exit_code != self.expected.get(r.rank, 0)]
        parts = [summary]
        for result in bad:
            if result.hung:
                how = "hung and was killed"
            else:
                how = f"ended with {describe_exit(result.exit_code)}"
                wanted = self.expected.get(result.rank, 0)
                if wanted:
                    how += f", expected {describe_exit(wanted)}"
            lines = result.output.rstrip().splitlines() or ["(no output)"]
            if len(lines) > _OUTPUT_LINES:
                lines = [f"... {len(lines) - _OUTPUT_LINES} lines", *lines[-_OUTPUT_LINES:]]
            parts.append(f"rank {result.rank} {how}")
            parts.extend(f"  {line}" for line in lines)
        super().__init__("\n".join(parts))


def describe_exit(exit_code: int) -> str:
    """Return 'exit code 3' or 'SIGKILL'."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal {-exit_code}"


def run_ranks(
    function: Callable[..., type_json],
    world_size: int,
    *,
    tmp_path: Path,
    timeout: float = 20.0,
    expect_exit: Mapping[int, int] | None = None,
    env: Mapping[str, str] | None = None,
    **kwargs: type_json,
) -> list[type_json]:
    """Call `function(**kwargs)` once per rank, each in a process, and return the results by rank.

    Inside, `dist.init_process_group()` just works. `expect_exit` names the ranks that must end with
    another exit code than 0 (negative: by that signal); their result is None unless they returned.
    `env` is added to the environment of every rank. Raises RanksFailed.
    """
    file, name = _locate(function)
    encoded = json.dumps(kwargs)
    expected = dict(expect_exit or {})
    folder = _new_folder(tmp_path)
    started = time.monotonic()
    orders = [
        ForkedRank(
            env=_environment(rank, world_size, folder, env or {}),
            output=folder / f"rank{rank}.out",
            arguments=[file, name, encoded, os.fspath(folder / f"rank{rank}.json")],
        )
        for rank in range(world_size)
    ]
    with fork_servers.take() as server:
        pids = server.start(orders)
        hung = _wait(server, pids, expected, started + timeout)
        exit_codes = server.end()
    results = [
        RankResult(
            rank=rank,
            exit_code=exit_code,
            hung=rank in hung,
            output=(folder / f"rank{rank}.out").read_text(errors="replace"),
            value=_read_result(folder / f"rank{rank}.json"),
        )
        for rank, exit_code in enumerate(exit_codes)
    ]
    if hung or any(r.exit_code != expected.get(r.rank, 0) for r in results):
        waited = time.monotonic() - started
        raise RanksFailed(
            results, expected, f"{name} on {world_size} ranks failed after {waited:.1f} s"
        )
    return [result.value for result in results]


def _locate(function: Callable[..., type_json]) -> tuple[str, str]:
    name = function.__qualname__
    if "<" in name:
        raise ValueError(f"run_ranks needs a function at module level, not {name}")
    return os.path.abspath(inspect.getfile(inspect.unwrap(function))), name


def _new_folder(tmp_path: Path) -> Path:
    # One test may run ranks several times; each run gets its own folder and store.
    number = 0
    while True:
        folder = tmp_path / f"ranks{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        else:
            return folder


def _environment(
    rank: int, world_size: int, folder: Path, extra: Mapping[str, str]
) -> dict[str, str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
    environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(rank),
        LOCAL_WORLD_SIZE=str(world_size),
        DISTDBG_STORE=f"local://{folder}/store",
        # A token of this run alone; without it the ranks would make a token file in the user's home.
        DISTDBG_TOKEN=hashlib.sha256(os.fsencode(folder)).hexdigest(),
        # Nobody looks at an agent of a test's ranks; `env` may ask for one.
        DISTDBG_AGENT="0",
        PYTHONPATH=python_path(environ),
        # For what a rank starts; its own BLAS is loaded already, with one thread.
        OMP_NUM_THREADS="1",
        OPENBLAS_NUM_THREADS="1",
    )
    environ.update(extra)
    return environ


def _wait(
    server: ForkServer, pids: list[int], expected: Mapping[int, int], deadline: float
) -> list[int]:
    # Returns the ranks that had not ended by the deadline, which have shown their stacks.
    running = set(range(len(pids)))
    while running and (left := deadline - time.monotonic()) > 0:
        ended = server.wait_for_one(left)
        if ended is None:
            break
        rank, exit_code = ended
        running.remove(rank)
        if exit_code != expected.get(rank, 0):
            deadline = min(deadline, time.monotonic() + _AFTER_FAILURE_S)
    for rank in running:
        os.kill(pids[rank], signal.SIGUSR1)
    if running:
        # The handler writes into a file and cannot answer, so there is nothing to wait for but time.
        time.sleep(_STACKS_S)
    return sorted(running)


def _read_result(path: Path) -> type_json:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
