"""What a stranger may try at an encrypted connection: it costs a bounded amount, for a bounded time."""

from __future__ import annotations

import ctypes
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

pytest.importorskip("cryptography")

from distdbg.control.dialled_address import derive_token
from distdbg.native import TcpHub
from distdbg.secure import channel
from distdbg.secure.contexts import make_contexts
from distdbg.secure.guard import SecuredSocket, open_guard
from distdbg.secure.settings import TlsSettings
from tests.net.test_tls import TOKEN, connected, made, secured, why


@pytest.fixture(autouse=True)
def _tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_TLS", "1")


def poll_for(is_so: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < until, what
        time.sleep(0.005)


def is_released(end: socket.socket) -> bool:
    assert isinstance(end, SecuredSocket)
    return end.relayed.network == -1


def a_hello() -> bytes:
    """How a client begins that knows the token."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = make_contexts(TlsSettings(), TOKEN).client.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_half_a_handshake_is_waited_for_so_long(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_S", 0.2)
    guard = made()
    hello = a_hello()
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        client.sendall(hello[: int(len(hello) * share)])
        assert why(end) == "it does not complete the TLS handshake"
        poll_for(lambda: is_released(end), "its descriptors are closed")
        end.close()
        guard.close()


def test_a_handshake_that_drips_is_waited_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "HANDSHAKE_S", 0.3)
    guard = made()
    hello = a_hello()
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        for byte in hello:
            try:
                client.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.005)  # a client that drips: what is tried here
        assert why(end) == "it does not complete the TLS handshake"
        end.close()
        guard.close()


def test_a_record_of_impossible_length_ends_the_connection() -> None:
    guard = made()
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        client.sendall(a_hello() + b"\x17\x03\x03\xff\xff" + bytes(0xFFFF))
        assert "TLS failed" in why(end)
        end.close()
        guard.close()


def test_a_handshake_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_MAX_HANDSHAKE_NBYTES", 20_000)
    guard = made()
    record = (
        b"\x16\x03\x01\x40\x00" + b"\x01\x01\xff\xff" + bytes(0x4000 - 4)
    )  # of a longer message
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        sender = threading.Thread(target=_send_all, args=(client, record * 20))
        sender.start()
        assert why(end)
        sender.join()
        end.close()
        guard.close()


def _send_all(sock: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # it was cut
        sock.sendall(data)


class KeyUpdates:
    """A client that asks for new keys again and again, which Python's ssl cannot."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", 20, 0))
        with open("/proc/self/maps", encoding="ascii") as maps:
            path = next(line.split()[-1] for line in maps if "libssl" in line)
        self._lib = lib = ctypes.CDLL(path)
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(lib, name).restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(lib.SSL_CTX_new(ctypes.c_void_p(lib.TLS_client_method())))
        self._ssl = ctypes.c_void_p(lib.SSL_new(self._context))
        lib.SSL_set_fd(self._ssl, sock.fileno())
        assert lib.SSL_connect(self._ssl) == 1

    def ask(self) -> bool:
        """False: the connection is gone."""
        lib = self._lib
        return lib.SSL_key_update(self._ssl, 1) == 1 and lib.SSL_do_handshake(self._ssl) == 1

    def close(self) -> None:
        self._lib.SSL_free(self._ssl)
        self._lib.SSL_CTX_free(self._context)


def test_answers_that_nobody_takes_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_MAX_UNSENT_NBYTES", 10_000)
    guard = made(is_web=True)
    with connected() as (client, server):
        for sock in (client, server):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4608)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
        end = guard.wrap(server, is_server=True)
        updates = KeyUpdates(client)
        asked = 0
        while updates.ask():
            asked += 1
            assert asked < 50_000
        assert why(end) == "it does not take the answers that it asks for"
        updates.close()
        end.close()
        guard.close()


def test_answers_that_are_taken_are_no_trouble() -> None:
    guard = made(is_web=True)
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        updates = KeyUpdates(client)
        taken = threading.Thread(target=lambda: [client.recv(1 << 16) for _ in range(3)])
        for _ in range(3):
            assert updates.ask()
        taken.start()
        end.sendall(b"still there")
        taken.join(10)
        client.shutdown(socket.SHUT_RDWR)
        taken.join(10)
        assert why(end) == ""
        updates.close()
        end.close()
        guard.close()


def test_what_a_peer_does_not_take_is_kept_for_so_long_once_nobody_is_inside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(channel, "_DRAIN_S", 0.2)
    monkeypatch.setattr(channel, "_LINGER_S", 0.2)
    client_guard, server_guard = made(), made()
    with connected() as (client, server):
        client_end = client_guard.wrap(client, is_server=False)
        end = server_guard.wrap(server, is_server=True)
        end.settimeout(0.1)
        with suppress(TimeoutError):
            for _ in range(100):  # whoever has dialled reads nothing
                end.sendall(bytes(1 << 20))
        assert isinstance(end, SecuredSocket)
        relayed = end.relayed
        end.close()
        poll_for(lambda: relayed.network == -1, "its descriptors are closed")
        client_end.close()
    client_guard.close()
    server_guard.close()


def test_what_goes_wrong_with_one_connection_is_no_trouble_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(self: channel.Channel) -> None:
        raise RuntimeError("nobody foresaw it")

    with secured(made(), made()) as (client, server):
        client.sendall(b"hello")
        assert server.recv(100) == b"hello"
        guard = made()
        with connected() as (stranger, other), monkeypatch.context() as patch:
            patch.setattr(channel.Channel, "_shake", fail)
            end = guard.wrap(other, is_server=True)
            stranger.sendall(a_hello())
            assert why(end) == "RuntimeError: nobody foresaw it"
            refused = guard.wrap(socket.socket(), is_server=False)
            assert refused.recv(1) == b""
            refused.close()
            end.close()
        guard.close()
        server.sendall(b"still there")
        assert client.recv(100) == b"still there"


def test_strangers_leave_neither_descriptors_nor_threads_at_a_hub() -> None:
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    guard = open_guard(TOKEN, silence_s=5.0)
    assert guard is not None
    hub = TcpHub("127.0.0.1", "0", derive_token(TOKEN, "link"), guard.native)
    host, port = hub.address.rsplit(":", 1)
    strangers = []
    hello = a_hello()
    for number in range(200):  # more than are heard at a time
        strangers.append(socket.create_connection((host, int(port)), 5))
        strangers[-1].sendall(hello[: number * 7 % len(hello)])
    for stranger in strangers[::2]:
        stranger.close()
    poll_for(lambda: hub.refused > 50, "those who have left are forgotten")
    hub.close()
    guard.close()
    for stranger in strangers:
        stranger.close()
    poll_for(
        lambda: (len(os.listdir("/proc/self/fd")), threading.active_count()) == before,
        "all is as before",
    )
