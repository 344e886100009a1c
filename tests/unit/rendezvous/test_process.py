"""Alive, gone, or not to be known from here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

from distdbg.runtime.rendezvous.process import (
    find_launcher_process,
    identify_self,
    is_alive,
    is_gone,
    read_start,
)

ME = identify_self()


def test_this_process_is_alive() -> None:
    assert is_alive(ME, ME)
    assert not is_gone(ME, ME)


def test_a_pid_that_is_used_again_is_another_process() -> None:
    former = replace(ME, started=ME.started - 1)
    assert is_gone(former, ME)
    assert not is_alive(former, ME)


def test_a_process_that_ended_is_gone_even_as_a_zombie() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = read_start(child.pid)
    assert started is not None
    process = replace(ME, pid=child.pid, started=started)
    assert is_alive(process, ME)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, nobody has reaped it
    assert is_gone(process, ME)
    child.communicate()
    assert is_gone(process, ME)


def test_of_another_host_or_container_nothing_is_known() -> None:
    for other in (
        replace(ME, host="n04", boot_id="other"),
        replace(ME, pid_namespace=1, started=1),
    ):
        assert not is_gone(other, ME)
        assert not is_alive(other, ME)


def test_after_a_reboot_of_this_host_all_is_gone() -> None:
    assert is_gone(replace(ME, boot_id="other"), ME)


def test_without_a_launcher_the_parent_stands_for_the_job() -> None:
    parent = os.getppid()
    none = re.compile("no such program")
    assert find_launcher_process(none) == f"{parent}.{read_start(parent)}"


def test_the_nearest_launcher_above_stands_for_the_job() -> None:
    with open(f"/proc/{os.getpid()}/comm") as file:
        own_name = file.read().strip()
    code = (
        "import re, sys; from distdbg.runtime.rendezvous.process import find_launcher_process as f;"
        "print(f(re.compile(re.escape(sys.argv[1]))))"
    )
    # A shell between the launcher and the rank, as in `mpiexec sh -c ...`.
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", code, own_name]
    path = os.pathsep.join(p for p in sys.path if p) + os.pathsep + os.getcwd()
    output = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path}
    ).stdout
    assert output.strip() == f"{os.getpid()}.{ME.started}"
