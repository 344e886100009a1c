"""The process behind `fork_server`: has imported the library, forks ranks, says how each ended.

Runs as a script: `fork_server_main.py DESCRIPTOR [MODULE ...]`. Orders and answers are lines of JSON on the
socket DESCRIPTOR, one batch of ranks at a time:

    {"cwd": ..., "ranks": [{"env": {...}, "output": FILE, "arguments": [...]}]}  ->  {"pids": [PID]}
    (whenever a rank has ended)                                      ->  {"ended": [INDEX, EXIT_CODE]}
    "end": kill the sessions of all ranks, and reap them             ->  {"exit_codes": [EXIT_CODE]}

No rank is reaped before the "end", so until then its PID means this rank and no other process. A rank returns
from `serve` into `main`: it ends like any interpreter, with its exit handlers and the join of its threads.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any, Final, TextIO

# A script's folder comes first on the path; ours would shadow modules of a test.
sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]

_NEEDS_TORCH: Final = "DistributedDataParallel"


def main(descriptor: str, *modules: str) -> None:
    """Serve until the client is gone; in a forked rank: carry out the rank."""
    preload(modules)
    with socket.socket(fileno=int(descriptor)) as connection:
        rank = serve(connection)
    if rank is not None:
        _run_function(*rank)


def preload(modules: tuple[str, ...]) -> None:
    """Import what ranks import, and use none of it: a rank is to find it as after its own import."""
    import distdbg

    for name in distdbg.__all__:
        if name != _NEEDS_TORCH:  # ranks have torch where they import it
            getattr(distdbg, name)  # each is loaded at first use
    for name in modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # no rank needs to look through what was imported


def serve(connection: socket.socket) -> list[str] | None:
    """Carry out batches; returns in a forked rank with its arguments, and at the client's end."""
    with connection.makefile("r") as orders, connection.makefile("w") as answers:
        for line in orders:
            order = json.loads(line)
            pids: list[int] = []
            parent = os.getpid()
            for rank in order["ranks"]:
                pid = os.fork()
                if pid == 0:
                    become(rank, order["cwd"], parent)
                    arguments: list[str] = rank["arguments"]
                    return arguments
                pids.append(pid)
            answer(answers, {"pids": pids})
            try:
                watch(connection, answers, pids)
            finally:
                codes = reap(pids)
            if orders.readline() == "":  # the "end" that watch() has seen coming
                return None
            answer(answers, {"exit_codes": codes})
    return None


def become(rank: dict[str, Any], cwd: str, parent: int) -> None:
    """Turn this fork into what a fresh process of its own session would be."""
    from distdbg.launch.parent_death import die_with_parent

    die_with_parent(parent)
    os.setsid()
    opened = os.open(rank["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(opened, 1)
    os.dup2(opened, 2)
    os.close(opened)
    os.chdir(cwd)
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(rank["env"])
    wanted = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*wanted, *(path for path in sys.path if path not in {*inherited, *wanted})]
    sys.argv[:] = [rank["arguments"][0]]


def watch(connection: socket.socket, answers: TextIO, pids: list[int]) -> None:
    """Name each rank that ends, until the client has something to say."""
    running = {os.pidfd_open(pid): index for index, pid in enumerate(pids)}
    try:
        while True:
            ready = set(select.select([connection.fileno(), *running], [], [])[0])
            for descriptor in ready & running.keys():
                os.close(descriptor)
                index = running.pop(descriptor)
                answer(answers, {"ended": [index, exit_code_of(pids[index])]})
            if connection.fileno() in ready:
                return
    finally:
        for descriptor in running:
            os.close(descriptor)


def exit_code_of(pid: int) -> int:
    """As `subprocess` says it, of a process that has ended and is not reaped."""
    status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert status is not None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def reap(pids: list[int]) -> list[int]:
    """Kill each rank with all of its session, and return the exit codes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)  # it may have no session yet
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # nobody is left of it but what has ended
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def answer(answers: TextIO, value: Any) -> None:
    """Send one line; a client that is gone will be seen at the next read."""
    try:
        print(json.dumps(value), file=answers, flush=True)
    except BrokenPipeError:
        return


def _run_function(file: str, name: str, encoded: str, result_file: str) -> None:
    """Call the function with arguments in JSON; what it raises ends the process with a traceback."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    spec = importlib.util.spec_from_file_location("rank_functions", file)
    if spec is None or spec.loader is None:
        sys.exit(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look modules up by name
    spec.loader.exec_module(module)
    function: object = module
    for part in name.split("."):
        function = getattr(function, part)
    if not callable(function):
        sys.exit(f"{name} in {file} is not a function")
    value = function(**json.loads(encoded))
    # Whole or not at all: the reader must not see half a result of a rank that was killed.
    partial = Path(result_file + ".partial")
    partial.write_text(json.dumps(value))
    partial.replace(result_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
