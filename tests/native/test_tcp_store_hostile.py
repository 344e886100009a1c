"""The TCPStore server beside clients that are wrong, dead, slow or many."""

from __future__ import annotations

import contextlib
import hmac
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from distdbg.control.dialled_address import derive_token, peer_address
from distdbg.errors import DistNetworkError, UsageError
from distdbg.native import StoreServer
from distdbg.runtime.store import TCPStore
from tests.relay import relay

TOKEN = b"the right one"
HELLO = b"distdbgS" + struct.pack("<II", 2, 0)


@pytest.fixture
def server() -> Iterator[TCPStore]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=TOKEN)
    yield store
    store.close()


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.settimeout(5)
    return sock


def receive(sock: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        part = sock.recv(nbytes - len(data))
        if not part:
            break
        data += part
    return data


def prove(sock: socket.socket, key: bytes = TOKEN) -> bool:
    """The client's side of the handshake, written from the protocol's description.

    False: the server does not know the token; this client goes on all the same.
    """
    hello = receive(sock, 48)
    assert hello[:16] == HELLO
    nonce, address = os.urandom(32), peer_address(sock)
    sock.sendall(b"distdbgC" + struct.pack("<II", 2, 0) + nonce + address + bytes(6))
    verdict = receive(sock, 48)
    assert verdict[0] == 1
    about = hello[16:] + nonce + address + verdict[8:16]
    token = derive_token(key, "store")
    sock.sendall(hmac.digest(token, b"distdbg store 2 client" + about, "sha256"))
    return verdict[16:] == hmac.digest(token, b"distdbg store 2 server" + about, "sha256")


def message(op: int, number: int, *fields: bytes) -> bytes:
    body = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return struct.pack("<IIq", len(body), op, number) + body


def assert_serves(server: TCPStore) -> None:
    server.set("alive", "yes")
    assert server.get("alive") == b"yes"


def test_the_described_protocol_is_the_real_one(server: TCPStore) -> None:
    with connect(server.port) as sock:
        assert prove(sock)
        sock.sendall(message(1, 0, b"rank0", b"hi"))
        assert receive(sock, 16) == bytes(16)
    assert server.get("rank0") == b"hi"


def test_another_token_is_refused_on_both_sides_and_the_server_goes_on(server: TCPStore) -> None:
    with pytest.raises(DistNetworkError, match="not authenticated") as caught:
        TCPStore("127.0.0.1", server.port, timeout=5, _token=b"a wrong one")
    assert "DISTDBG_TOKEN" in str(caught.value)
    assert f"the port is held by this process (pid {os.getpid()})" in str(caught.value)
    with connect(server.port) as sock:
        assert not prove(sock, b"a wrong one")
        assert sock.recv(1) == b""
    assert_serves(server)


def test_a_client_says_no_more_than_a_nonce_to_an_impostor() -> None:
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept_all() -> None:
            nonlocal said
            sock, _ = listener.accept()
            with sock:
                sock.sendall(HELLO + os.urandom(32))
                said = receive(sock, 72)
                sock.sendall(struct.pack("<IIII", 1, 0, 1 << 16, 1 << 26) + os.urandom(32))
                said += receive(sock, 1)

        thread = threading.Thread(target=accept_all)
        thread.start()
        with pytest.raises(DistNetworkError, match="does not know the token"):
            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()
    assert len(said) == 72


def test_a_stranger_who_hands_a_handshake_on_to_another_store_gets_nothing(
    server: TCPStore,
) -> None:
    with relay(server.port) as (port, _):
        with pytest.raises(DistNetworkError, match="not at the address that was dialled") as caught:
            TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
        assert "DISTDBG_SERVED_AS" in str(caught.value)
    with (
        relay(server.port, claims=server.port) as (port, _),  # it corrects the address
        pytest.raises(DistNetworkError, match="does not know the token"),
    ):
        TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
    assert_serves(server)


def test_a_tunnel_of_ones_own_is_named_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with relay(0) as (port, to):
        monkeypatch.setenv("DISTDBG_SERVED_AS", f"127.0.0.1:{port}")
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=TOKEN)
        to(store.port)
        other = TCPStore("127.0.0.1", port, timeout=5, _token=TOKEN)
        other.set("came", "through")
        assert store.get("came") == b"through"
        other.close()
        store.close()


def test_a_client_of_an_older_version_is_told_so(server: TCPStore) -> None:
    with connect(server.port) as sock:
        assert struct.unpack_from("<I", receive(sock, 48), 8) == (2,)  # which it refuses by itself
        sock.sendall(b"distdbgC" + struct.pack("<II", 1, 0) + bytes(64))
        assert receive(sock, 48)[:4] == b"\2\0\0\0"
        assert sock.recv(1) == b""


def test_a_server_of_an_older_version_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.sendall(b"distdbgS" + struct.pack("<II", 1, 0) + os.urandom(32))
                assert receive(sock, 1) == b""

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DistNetworkError, match=r"speaks version 1 .*, this process version 2"):
            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()


def test_what_is_no_store_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with sock, contextlib.suppress(ConnectionError):
                sock.sendall(b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 100)
                receive(sock, 1)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(DistNetworkError, match="not a distdbg store") as caught:
            TCPStore("127.0.0.1", listener.getsockname()[1], timeout=5, _token=TOKEN)
        thread.join()
    assert caught.value.details == [f"the port is held by this process (pid {os.getpid()})"]


def test_garbage_instead_of_a_proof_closes_the_connection(server: TCPStore) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 80, b"distdbgC" + b"\xff" * 72):
        with connect(server.port) as sock:
            receive(sock, 48)
            sock.sendall(garbage)
            rest = receive(sock, 48)
            assert rest[:1] != b"\1"
            assert rest == b"" or sock.recv(1) == b""
    assert_serves(server)


def test_garbage_after_the_proof_closes_only_that_connection(server: TCPStore) -> None:
    draw = random.Random(5)
    for _ in range(40):
        with connect(server.port) as sock:
            prove(sock)
            body = draw.randbytes(draw.randrange(1, 200))
            try:
                sock.sendall(struct.pack("<I", draw.choice([len(body), 2**32 - 1])) + body)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(4096):
                    pass
            except ConnectionError:
                pass
    assert_serves(server)


@pytest.mark.parametrize(
    "wrong",
    [
        message(0, 0, b"key"),
        message(99, 0, b"key"),
        message(1, 0, b"key without value"),
        message(1, 0, b"k" * 65537, b"v"),
        message(6, 0, b"key", b"expected"),
        message(15, 0, b"not a number"),
        struct.pack("<IIq", 8, 2, 0) + struct.pack("<I", 100) + b"abcd",
        struct.pack("<IIq", 2**31, 1, 0),
    ],
)
def test_requests_that_make_no_sense_are_answered_and_end_the_connection(
    server: TCPStore, wrong: bytes
) -> None:
    with connect(server.port) as sock:
        prove(sock)
        sock.sendall(wrong)
        assert receive(sock, 16)[4] == 6  # bad_request
        assert sock.recv(1) == b""
    assert_serves(server)


def test_requests_sent_byte_by_byte_or_together_are_all_answered(server: TCPStore) -> None:
    with connect(server.port) as sock:
        prove(sock)
        for byte in message(1, 0, b"key", b"value"):
            sock.send(bytes([byte]))
        assert receive(sock, 16) == bytes(16)
        sock.sendall(message(3, 1, b"n") * 50)
        replies = receive(sock, 16 * 50)
        assert [struct.unpack_from("<q", replies, 16 * i + 8)[0] for i in range(50)] == list(
            range(1, 51)
        )


def test_a_client_that_dies_in_the_middle_of_a_message_changes_nothing(server: TCPStore) -> None:
    with connect(server.port) as sock:
        prove(sock)
        sock.sendall(message(1, 0, b"half", b"value" * 1000)[:2000])
    assert not server.check(["half"])
    assert_serves(server)


def test_a_waiting_client_that_dies_gets_nothing_from_the_queue(server: TCPStore) -> None:
    with connect(server.port) as sock:
        prove(sock)
        sock.sendall(message(12, 60 * 10**9, b"queue"))
        wait_for_clients(server, 2)
    wait_for_clients(server, 1)
    server.queue_push("queue", "kept")
    assert server.queue_pop("queue") == b"kept"


def wait_for_clients(server: TCPStore, count: int) -> None:
    """The server counts connections by itself; a round trip afterwards orders what we see."""
    for _ in range(10_000):
        server.check([])
        if count_clients(server) == count:
            return
    raise AssertionError(f"{count_clients(server)} clients, not {count}")


def count_clients(server: TCPStore) -> int:
    assert server._server is not None
    return int(server._server.native.count_clients())


def test_a_reader_that_never_reads_does_not_hold_up_others(server: TCPStore) -> None:
    server.set("large", b"x" * (16 << 20))
    with connect(server.port) as sock:
        prove(sock)
        sock.sendall(message(2, 0, b"large") * 20)
        for _ in range(20):
            assert_serves(server)
        # It was only stopped, not forgotten: the replies come one by one.
        assert receive(sock, 16) == struct.pack("<IIq", 4 + (16 << 20), 0, 0)


def test_a_half_open_client_is_closed_when_its_time_is_over() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = StoreServer(
        listener.detach(),
        TOKEN,
        key_nbytes=100,
        value_nbytes=100,
        shares_port=False,
        proof_timeout_ns=50_000_000,
    )
    try:
        with connect(port) as silent:
            receive(silent, 48)
            silent.sendall(b"distdbgC")
            assert silent.recv(1) == b""  # closed by the server, after 50 ms
    finally:
        server.close()


def test_sizes_are_bounded_before_anything_is_sent() -> None:
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, _token=TOKEN, _value_nbytes=1000
    )
    try:
        store.set("fits", b"x" * 1000)
        with pytest.raises(UsageError, match="1001 bytes"):
            store.set("key", b"x" * 1001)
        with pytest.raises(UsageError, match="at most 65536"):
            store.set("k" * 65537, "1")
        with pytest.raises(UsageError, match="largest size"):
            store.append("fits", "y")
        assert store.get("fits") == b"x" * 1000
    finally:
        store.close()


@pytest.mark.slow  # 2,000 handshakes
def test_a_thousand_clients_wait_at_once(server: TCPStore) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    clients = []
    try:
        for _ in range(1000):
            sock = connect(server.port)
            prove(sock)
            sock.sendall(message(2, 60 * 10**9, b"late"))
            clients.append(sock)
        wait_for_clients(server, 1001)
        server.set("late", "now")
        for sock in clients:
            assert receive(sock, 23)[20:] == b"now"
    finally:
        for sock in clients:
            sock.close()
        wait_for_clients(server, 1)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
