"""A process with the library imported, that forks the ranks of one program after the other.

    python zygote.py distdbg|torch|watched [MODULE ...]      orders and answers are lines of JSON

Every rank is a process of its own, so it can be killed and its exit code means something, and yet
starts in milliseconds: importing torch takes seconds. Nothing of the library was used before the
fork, only imported.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(__file__)]

from runner import rank as one_rank  # noqa: E402 - the path is set above

_STACKS_S = 0.3
_PR_SET_PDEATHSIG = 1


def main(subject: str, *modules: str) -> None:
    """Carry out orders until the end of stdin. A forked rank leaves by an exception or exit."""
    _die_with_parent()
    _preload(subject, modules)
    gc.freeze()  # what was imported is for all ranks: none needs to look through it
    answers = os.fdopen(os.dup(1), "w")
    orders = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for line in orders:
        order = json.loads(line)
        pids = []
        for rank in range(order["ranks"]):
            pid = os.fork()
            if pid == 0:
                _die_with_parent()
                orders.close()
                answers.close()
                if "torch" in sys.modules:
                    _run_and_drop(subject, order, rank)
                one_rank.run(subject, order, rank)  # also ends with what the program raises
                return
            pids.append(pid)
        print(json.dumps(_collect(order, pids)), file=answers, flush=True)


def _run_and_drop(subject: str, order: dict[str, Any], rank: int) -> NoReturn:
    # torch takes seconds to take itself apart, and leaves nothing that the kernel would not.
    code = 1
    try:
        one_rank.run(subject, order, rank)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _collect(order: dict[str, Any], pids: list[int]) -> list[dict[str, Any]]:
    descriptors = {os.pidfd_open(pid): rank for rank, pid in enumerate(pids)}
    running = dict(descriptors)
    ended_ns: dict[int, int] = {}
    deadline = time.monotonic() + order["limit_s"]
    while running and (left := deadline - time.monotonic()) > 0:
        for descriptor in select.select(list(running), [], [], left)[0]:
            ended_ns[running.pop(descriptor)] = time.monotonic_ns()
    hung = set(running.values())
    if hung:
        for rank in hung:
            os.kill(pids[rank], signal.SIGUSR1)  # faulthandler writes all stacks
        time.sleep(_STACKS_S)  # nothing announces that it is done
    results = []
    for descriptor, rank in descriptors.items():
        if rank in hung:
            os.kill(pids[rank], signal.SIGKILL)
        _, status = os.waitpid(pids[rank], 0)
        os.close(descriptor)
        folder = Path(order["folder"])
        _write_end(order, rank, pids[rank], status, ended_ns.get(rank, time.monotonic_ns()))
        report = folder / f"rank{rank}.json"
        results.append(
            {
                "rank": rank,
                "hung": rank in hung,
                "exit_code": os.waitstatus_to_exitcode(status),
                "stdout": (folder / f"rank{rank}.out").read_text(errors="replace"),
                "stderr": (folder / f"rank{rank}.err").read_text(errors="replace"),
                "report": json.loads(report.read_text()) if report.exists() else None,
            }
        )
    return results


def _write_end(order: dict[str, Any], rank: int, pid: int, status: int, ended_ns: int) -> None:
    """As a launcher does it, for the diagnosis."""
    run = Path(order["env"]["DISTDBG_RUN_DIR"])
    if "distdbg.record.ends" not in sys.modules or not run.is_dir():
        return
    ends = sys.modules["distdbg.record.ends"]
    code = os.waitstatus_to_exitcode(status)
    how = (
        {"cause": "signal", "signal": -code} if code < 0 else {"cause": "exited", "exit_code": code}
    )
    wall_ns = time.time_ns() - time.monotonic_ns() + ended_ns
    who = {"rank": rank, "pid": pid, "host": socket.gethostname()}
    ends.write_end(run, ends.RankEnd(**who, ended_ns=ended_ns, wall_ns=wall_ns, **how))


def _preload(subject: str, modules: tuple[str, ...]) -> None:
    for name in ("numpy", *modules):
        importlib.import_module(name)
    if subject != "distdbg":
        importlib.import_module("torch").set_num_threads(1)
        importlib.import_module("torch.nn.parallel")
        importlib.import_module("torch.distributed")
        importlib.import_module("runner.torch_numpy")
        importlib.import_module("runner.torch_dist")
    if subject == "torch":
        return
    library = importlib.import_module("distdbg")
    importlib.import_module("distdbg.record.ends")
    for name in dir(library):  # each name is loaded at first use
        getattr(library, name)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
