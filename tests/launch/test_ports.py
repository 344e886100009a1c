from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from distdbg.errors import DistNetworkError
from distdbg.launch.ports import HeldPort
from distdbg.runtime.store import TCPStore


def test_whoever_asks_for_any_port_is_not_given_a_held_one() -> None:
    # A range of ports so small that all of them are asked for; in a network of its own.
    program = """
import errno, socket, sys
from pathlib import Path
from distdbg.launch.ports import HeldPort
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40007")
held = [HeldPort() for _ in range(4)]
taken = {port.number for port in held}
assert len(taken) == 4
given, sockets = set(), []
for family, address, reuse in (
    (socket.AF_INET, "127.0.0.1", 0), (socket.AF_INET, "0.0.0.0", 1), (socket.AF_INET6, "::", 1),
    (socket.AF_INET, "127.0.0.1", 1), (socket.AF_INET6, "::1", 1),
) * 3:
    stranger = socket.socket(family)
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        stranger.bind((address, 0))
    except OSError as error:
        assert error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL), error
    else:
        given.add(stranger.getsockname()[1])
        sockets.append(stranger)
assert given and not given & taken, (given, taken)
"""
    done = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr.startswith("unshare: "):
        pytest.skip(f"this kernel lets nobody make a network of its own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr


def test_outgoing_connections_do_not_get_a_held_port() -> None:
    with (
        HeldPort() as held,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket() as client,
    ):
        with pytest.raises(OSError) as caught:
            client.bind(("127.0.0.1", held.number))  # without SO_REUSEADDR
        assert caught.value.errno == errno.EADDRINUSE
        client.connect(server.getsockname())
        assert client.getsockname()[1] != held.number


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "localhost"])
def test_a_store_of_this_package_listens_on_a_held_port(host: str) -> None:
    with HeldPort() as held:
        store = TCPStore(host, held.number, is_master=True, timeout=30)
        assert store.port == held.number
        store.close()
        store = TCPStore(host, held.number, is_master=True, timeout=30)  # a restart
        store.close()


def test_a_server_of_the_standard_library_listens_on_a_held_port(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("hello")
    with (
        HeldPort() as held,
        subprocess.Popen(
            [sys.executable, "-u", "-m", "http.server", str(held.number), "-b", "127.0.0.1"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as server,
    ):
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith(b"Serving HTTP")
            with urllib.request.urlopen(
                f"http://127.0.0.1:{held.number}/page", timeout=30
            ) as answer:
                assert answer.read() == b"hello"
        finally:
            server.kill()


def test_a_port_that_is_asked_for_and_taken_names_who_has_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = rf"port {port} is held by this process \(pid {os.getpid()}\)"
        with pytest.raises(DistNetworkError, match=words):
            HeldPort(port=port)
    with HeldPort(port=port) as held:
        assert held.number == port
    HeldPort(port=port).release()


def test_a_port_of_another_host_is_taken_as_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with HeldPort("192.0.2.1", port) as held:  # of no host: for documentation
            assert held.number == port
