from __future__ import annotations

import ipaddress
import os
import pwd
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from distdbg.runtime.store.holder import (
    find_port_holders,
    find_sockets,
    holder_of,
    is_of_this_host,
    parse_sockets,
)
from distdbg.runtime.store.listen import hidden_address

if TYPE_CHECKING:
    import pytest

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LISTENER = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1"
CLIENT = "   1: 0200A8C0:1F90 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 4712 1"
BURIED = (
    "   2: 0100007F:1F90 0100007F:A001 06 00000000:00000000 03:00000EA6 00000000     0        0 0 3"
)
V6 = (
    "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A "
    "00000000:00000000 00:00000000 00000000  1000        0 4713 1"
)
MAPPED = V6.replace("0" * 32 + ":1F90", "0000000000000000FFFF00000100007F:1F90")


def test_a_table_of_the_kernel_is_read() -> None:
    found = parse_sockets("\n".join([HEAD, LISTENER, CLIENT, BURIED]))
    assert [(str(s.address), s.port, s.listens, s.uid, s.inode) for s in found] == [
        ("127.0.0.1", 8080, True, 1000, 4711),
        ("192.168.0.2", 8080, False, 0, 4712),
    ]
    [both] = parse_sockets(f"{HEAD}\n{V6}")
    assert both.address == ipaddress.IPv6Address("::")
    [mapped] = parse_sockets(f"{HEAD}\n{MAPPED}")
    assert mapped.address == ipaddress.IPv4Address("127.0.0.1")


def test_this_process_is_called_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert holder_of(port) == f"this process (pid {os.getpid()})"
        with socket.create_connection(("127.0.0.1", port)) as client:
            # The end of a connection holds its port as well, as long as nobody listens there.
            own = client.getsockname()[1]
            assert holder_of(own) == f"this process (pid {os.getpid()})"


def test_an_address_leaves_out_who_holds_another_one() -> None:
    with socket.create_server(("127.0.0.2", 0)) as listener:
        port = listener.getsockname()[1]
        for address, count in (
            (None, 1), ("127.0.0.2", 1), ("0.0.0.0", 1), ("::", 1), ("127.0.0.1", 0), ("::1", 0),
        ):  # fmt: skip
            assert len(find_sockets(port, address)) == count
    with socket.create_server(("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        assert find_sockets(port, "127.0.0.7")
        assert not find_sockets(port, "::1")


def test_another_process_is_named_by_command_pid_and_user() -> None:
    program = """import socket, sys
with socket.create_server(("127.0.0.1", 0)) as s:
    print(s.getsockname()[1], flush=True)
    sys.stdin.read()"""
    with subprocess.Popen(
        [sys.executable, "-c", program, "x" * 100],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        user = pwd.getpwuid(os.getuid()).pw_name
        said = holder_of(port)
        process.communicate("")
    begin = f"{os.path.basename(sys.executable)} -c import socket, sys with socket.create_server("
    assert said.startswith(begin)
    assert said.endswith(f"... (pid {process.pid}, user {user})")
    assert find_port_holders(port) == []


def test_what_cannot_be_seen_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert holder_of(bound.getsockname()[1]).startswith("a process that cannot be seen")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr("distdbg.runtime.store.holder._processes", lambda inodes: [])
        user = pwd.getpwuid(os.getuid()).pw_name
        said = holder_of(listener.getsockname()[1])
        assert said == f"a process of user {user} that cannot be seen from here"


def test_a_host_is_known_as_this_one() -> None:
    assert is_of_this_host("127.0.0.1")
    assert is_of_this_host("localhost")
    assert not is_of_this_host("192.0.2.1")  # of no host: for documentation
    assert not is_of_this_host("no.such.host.invalid")


def test_a_name_that_other_hosts_do_not_mean_this_host_by_is_told() -> None:
    assert hidden_address("n01", "127.0.1.1") == "127.0.1.1"
    assert [
        hidden_address(host, address)
        for host, address in (
            ("n01", "10.0.0.1"),
            ("127.0.1.1", "127.0.1.1"),
            ("localhost", "127.0.0.1"),
            ("0.0.0.0", "0.0.0.0"),
        )
    ] == [""] * 4
