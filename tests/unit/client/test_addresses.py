"""What a command line says of where an agent is, and what ssh says when it cannot get there."""

from __future__ import annotations

import pytest

from distdbg.client.addresses import (
    Address,
    LocalAddress,
    SshAddress,
    TcpAddress,
    parse_address,
)
from distdbg.client.ssh import explain
from distdbg.errors import DistNetworkError, UsageError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (None, LocalAddress(None)),
        ("20261121-1305", LocalAddress("20261121-1305")),
        ("my:run", LocalAddress("my:run")),
        ("n14:7000", TcpAddress("n14", 7000)),
        ("10.0.0.3:7000", TcpAddress("10.0.0.3", 7000)),
        ("[fe80::1%eth0]:7000", TcpAddress("fe80::1%eth0", 7000)),
        ("ssh://n14", SshAddress("n14")),
        ("ssh://n14/", SshAddress("n14")),
        ("ssh://ada@n14:2222/20261121-1305", SshAddress("n14", "ada", 2222, "20261121-1305")),
        ("ssh://[::1]:22", SshAddress("::1", None, 22)),
    ],
)
def test_an_address_is_read(text: str | None, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "ssh://",
        "ssh://-oProxyCommand=touch x",
        "ssh://-l@n14",
        "ssh://n14;touch x",
        "ssh://n14:0",
        "ssh://n14:70000",
        "n14:70000",
        "n14:0",
        "http://n14:7000",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)


@pytest.mark.parametrize("text", ["ssh://n14", "ssh://ada@n14:2222", "ssh://[::1]:22"])
def test_an_address_is_said_as_it_was_written(text: str) -> None:
    assert str(parse_address(text)) == text


@pytest.mark.parametrize(
    ("code", "said", "what"),
    [
        (
            255,
            "ssh: Could not resolve hostname n14: Name or service not known",
            "unknown host name",
        ),
        (255, "Host key verification failed.", "does not know the host's key"),
        (255, "ada@n14: Permission denied (publickey).", "ssh was refused"),
        (255, "ssh: connect to host n14 port 22: Connection refused", "nobody answers ssh"),
        (255, "ssh: connect to host n14 port 22: Connection timed out", "does not answer"),
        (255, "Warning: remote port forwarding failed", "does not forward sockets"),
        (255, "something\nnew of ssh", "ssh failed: new of ssh"),
        (-9, "", "ssh failed"),
        (1, "/usr/bin/python3: No module named distdbg", "its Python has no distdbg"),
        (127, "sh: 1: python9: not found", "there is no such Python: sh: 1: python9: not found"),
        (3, "quota\nexceeded", "exit code 3"),
        (None, "", "did not answer within 30 s"),
    ],
)
def test_what_ssh_says_becomes_an_error_that_says_what_to_do(
    code: int | None, said: str, what: str
) -> None:
    error = explain(SshAddress("n14"), code, said)
    assert isinstance(error, DistNetworkError | UsageError)
    assert error.what.startswith("ssh://n14: ") or code is None
    assert what in error.what
