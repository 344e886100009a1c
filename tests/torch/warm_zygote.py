"""An interpreter with torch imported that forks a process for each script: `warm_zygote.py FD`.

FD is a socket. An order is JSON with four descriptors: the script's 0, 1, 2, and one that gets a line
with its pid and, when it has ended, a line with its exit code. The end of the orders ends this
process, and that kills all that it forked.

Every script has a process of its own, so it can be killed and its exit code means something.
Nothing of torch was used before the fork, only imported.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from typing import Any

#: Not `torch.distributed.run` and the other modules that a script runs as its main one.
MODULES = (
    "numpy",
    "pytest",  # of the files that hold the functions of ranks
    "torch.nn.parallel",
    "torch.distributed.launcher.api",
    "torch.distributed.elastic.multiprocessing.errors",
    "torch._inductor.codecache",  # a dump of the flight recorder looks lines up there
)
_LIMIT = 1 << 20
_PR_SET_PDEATHSIG = 1


def main(descriptor: str) -> None:
    """Carry out orders; a forked process may leave by SystemExit."""
    _die_with_parent()
    orders = socket.socket(fileno=int(descriptor))
    orders.send(b"here")
    for name in MODULES:
        importlib.import_module(name)
    library = importlib.import_module("distdbg")
    for name in dir(library):  # each name is loaded at first use
        getattr(library, name)
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    gc.freeze()  # what was imported is for all scripts: none needs to look through it
    running: dict[int, tuple[int, int]] = {}  # pid and where to tell its end, by pidfd
    with selectors.DefaultSelector() as selector:
        selector.register(orders, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not orders:
                    selector.unregister(key.fd)
                    _tell_end(key.fd, *running.pop(key.fd))
                    continue
                message, descriptors, *_ = socket.recv_fds(orders, _LIMIT, 4)
                if not message:
                    return
                pid = os.fork()
                if pid == 0:
                    selector.close()
                    orders.close()
                    for pidfd, (_, answer) in running.items():
                        os.close(pidfd)
                        os.close(answer)
                    _become(json.loads(message), descriptors)
                for each in descriptors[:3]:
                    os.close(each)
                _say(descriptors[3], pid)
                pidfd = os.pidfd_open(pid)
                running[pidfd] = pid, descriptors[3]
                selector.register(pidfd, selectors.EVENT_READ)


def _tell_end(pidfd: int, pid: int, answer: int) -> None:
    _, status = os.waitpid(pid, 0)
    _say(answer, os.waitstatus_to_exitcode(status))
    os.close(pidfd)
    os.close(answer)


def _say(answer: int, number: int) -> None:
    try:
        os.write(answer, b"%d\n" % number)
    except BrokenPipeError:  # who asked for the script has forgotten it
        return


def _become(order: dict[str, Any], descriptors: list[int]) -> None:
    """Run the script as the main one of this process, and end as it ends."""
    _die_with_parent()
    if order["own_session"]:
        os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    paths = order["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    code = 1
    try:
        _run(order["argv"])
        code = 0
    except SystemExit as error:
        code = _exit_code(error)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    if order["ends_itself"]:
        sys.exit(code)
    # As an interpreter ends, but torch takes long to take itself apart and leaves nothing that the
    # kernel would not.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(argv: list[str]) -> None:
    match argv:
        case ["-c", text, *arguments]:
            sys.argv[:] = ["-c", *arguments]
            exec(compile(text, "<string>", "exec"), {"__name__": "__main__"})
        case ["-m", name, *arguments]:
            sys.argv[:] = [name, *arguments]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        case [path, *arguments]:
            sys.argv[:] = [path, *arguments]
            sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
            runpy.run_path(path, run_name="__main__")


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
