"""The hub of native/core/tcp_hub.hpp from Python; native/tests/test_tcp_hub.cpp has the rest."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

from distdbg.native import NativeError, TcpHub


def reach(hub: TcpHub) -> socket.socket:
    host, port = hub.address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    sock.settimeout(10)
    return sock


def test_a_hub_says_where_it_listens_and_who_was_turned_away() -> None:
    hub = TcpHub("127.0.0.1", "0", b"token")
    try:
        assert hub.address.startswith("127.0.0.1:")
        assert hub.complaints() == []
        with reach(hub) as sock:
            name = "{}:{}".format(*sock.getsockname())
            assert sock.recv(48, socket.MSG_WAITALL)[:8] == b"distdbgH"
            sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):  # it had not read all of it
                assert sock.recv(1) == b""
        deadline = time.monotonic() + 10
        while hub.refused == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert hub.complaints() == [f"{name} sent what is no request of distdbg"]
        assert hub.complaints() == []
        assert hub.refused == 1
    finally:
        hub.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_hub_never_listens_everywhere(host: str) -> None:
    with pytest.raises(NativeError) as caught:
        TcpHub(host, "0", b"token")
    assert caught.value.fault == "usage"


def test_an_address_of_another_host_is_named() -> None:
    with pytest.raises(NativeError, match=r"cannot listen at 192\.0\.2\.1: ") as caught:
        TcpHub("192.0.2.1", "0", b"token")
    assert caught.value.fault == "network"
    assert caught.value.error_number != 0


def test_close_leaves_no_thread_and_no_file() -> None:
    def have() -> set[str]:
        # By number: a thread that an earlier test has left may end meanwhile.
        return {
            str(path) for kind in ("fd", "task") for path in Path(f"/proc/self/{kind}").iterdir()
        }

    before = have()
    hub = TcpHub("127.0.0.1", "0", b"token")
    reach(hub).close()
    during = have()
    hub.close()
    hub.close()
    assert during - before
    assert not have() - before
