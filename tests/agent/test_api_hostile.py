"""Clients of the agent's API that mean no good, or do not pay attention."""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distdbg.agent import api
from distdbg.agent.api import ApiClient, ApiServer
from distdbg.client import protocol
from distdbg.client.agent_client import AgentClient
from distdbg.client.protocol import Request
from distdbg.control import sockets
from distdbg.errors import ConfigError, DistNetworkError
from tests.relay import relay


class Echo:
    """Answers with what was asked; 'big' with so much that nobody can hold it unread."""

    def do(self, request: Request, client: ApiClient) -> None:
        value = "x" * (8 << 20) if request.do == "big" else request.arguments
        client.send(protocol.answer(request.id, value))

    def gone(self, client: ApiClient) -> None:
        pass


class Serving:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.selector = selectors.DefaultSelector()
        self.server = ApiServer(self.selector, Echo(), run="r", host="h")
        self.server.listen_unix(path)
        self.port = self.server.listen_tcp("127.0.0.1", 0, b"the token")
        self.is_over = False
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def serve(self) -> None:
        while not self.is_over:
            for key, mask in self.selector.select(0.02):
                key.data(mask)
            self.server.tick(time.monotonic_ns())

    def close(self) -> None:
        self.is_over = True
        self.thread.join()
        self.server.close()
        self.selector.close()

    def raw(self) -> socket.socket:
        sock = sockets.connect(self.path, 5.0)
        assert b'"distdbg":"agent"' in sock.recv(4096)
        return sock


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    folder = tmp_path / ("a" * 120)  # longer than the kernel takes for a socket
    folder.mkdir()
    found = Serving(folder / "run@host.sock")
    yield found
    found.close()


def read_line(sock: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = sock.recv(1 << 16)
        if not more:
            return b""
        data += more
    return data


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "line",
    [b"garbage", b"[1]", b"{}", b'{"id":1}', b'{"id":true,"do":"x"}', b'{"id":1,"do":3}',
     b"[" * 100_000, b'{"id":"' + b"x" * 100 + b'","do":"x"}', b"\xff\xfe\x00"],
)  # fmt: skip
def test_a_line_that_is_no_request_gets_an_error_and_harms_nobody(
    serving: Serving, line: bytes
) -> None:
    with serving.raw() as sock:
        sock.sendall(line + b"\n")
        assert "error" in json.loads(read_line(sock))
        sock.sendall(b'{"id":7,"do":"echo","a":1}\n')
        assert json.loads(read_line(sock)) == {"id": 7, "ok": {"a": 1}}


def test_a_line_without_end_is_cut_off(serving: Serving) -> None:
    with serving.raw() as sock:
        with pytest.raises(OSError):
            sock.sendall(b"x" * (4 << 20))
        with AgentClient.at(serving.path) as client:
            assert client.ask("echo", a=2) == {"a": 2}


def test_a_client_that_does_not_read_is_dropped_and_others_are_served(serving: Serving) -> None:
    with serving.raw() as sock:
        for number in range(8):
            sock.sendall(b'{"id":%d,"do":"big"}\n' % number)
        with AgentClient.at(serving.path, timeout_s=120.0) as client:
            assert client.ask("echo", a=3) == {"a": 3}
        deadline = time.monotonic() + 120
        while serving.server.clients and time.monotonic() < deadline:
            time.sleep(0.01)  # the server says nothing when it drops somebody
        assert not serving.server.clients


def test_a_client_that_stops_reading_for_long_is_dropped(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PATIENCE_S", 0.2)
    with serving.raw() as sock:
        sock.sendall(b'{"id":1,"do":"big"}\n')
        deadline = time.monotonic() + 120
        while not serving.server.clients and time.monotonic() < deadline:
            time.sleep(0.01)
        while serving.server.clients and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not serving.server.clients


def test_more_clients_than_allowed_are_turned_away(serving: Serving) -> None:
    held = [serving.raw() for _ in range(api.MAX_CLIENTS)]
    one_more = sockets.connect(serving.path, 5.0)
    assert is_closed(one_more)
    one_more.close()
    held.pop().close()
    for sock in held:
        sock.close()
    deadline = time.monotonic() + 120
    while serving.server.clients and time.monotonic() < deadline:
        time.sleep(0.01)
    with AgentClient.at(serving.path) as client:
        assert client.ask("echo") == {}


def test_over_tcp_only_who_has_the_token_is_served(serving: Serving) -> None:
    with AgentClient.over_tcp("127.0.0.1", serving.port, b"the token") as client:
        assert client.ask("echo", a=1) == {"a": 1}
    with pytest.raises(DistNetworkError, match="does not have the token") as caught:
        AgentClient.over_tcp("127.0.0.1", serving.port, b"another")
    assert "DISTDBG_TOKEN" in str(caught.value.hint)
    for line in (
        b'{"id":1,"do":"echo"}\n',
        b"\n\n{}\n",
        b'{"proof":7}\n',
        b'{"proof":"\xc3\xa9"}\n',
    ):
        with socket.create_connection(("127.0.0.1", serving.port), 5) as sock:
            assert b'"nonce"' in read_line(sock)
            sock.sendall(line)
            assert is_closed(sock)


def test_a_proof_is_good_for_one_connection(serving: Serving) -> None:
    address = f"127.0.0.1:{serving.port}"
    token = protocol.agent_token(b"the token", "r")
    with socket.create_connection(("127.0.0.1", serving.port), 5) as first:
        nonce = json.loads(read_line(first))["nonce"]
        ours = protocol.Proof(token, "r", nonce, protocol.make_nonce(), address)
        challenge = protocol.encode({"nonce": ours.client_nonce, "dialled": address})
        first.sendall(challenge)
        assert ours.is_of("server", json.loads(read_line(first)))
        proof = protocol.encode({"proof": ours.of("client")})
        with socket.create_connection(("127.0.0.1", serving.port), 5) as second:
            read_line(second)
            second.sendall(challenge)
            read_line(second)
            second.sendall(proof)
            assert is_closed(second)
        first.sendall(proof)
        assert json.loads(read_line(first)) == {"ok": True}


def test_a_stranger_who_hands_the_words_on_to_another_agent_gets_nothing(serving: Serving) -> None:
    with relay(serving.port) as (port, _):
        with pytest.raises(DistNetworkError, match="not at the address that was dialled") as caught:
            AgentClient.over_tcp("127.0.0.1", port, b"the token")
        assert "DISTDBG_SERVED_AS" in str(caught.value.hint)

    def claim(data: bytes) -> bytes:
        return data.replace(b":%d" % port, b":%d" % serving.port)

    with (
        relay(serving.port, change=claim) as (port, _),
        pytest.raises(DistNetworkError, match="does not have the token"),
    ):
        AgentClient.over_tcp("127.0.0.1", port, b"the token")
    with AgentClient.over_tcp("127.0.0.1", serving.port, b"the token") as client:
        assert client.ask("echo", a=1) == {"a": 1}


def test_a_server_that_asks_for_no_proof_hears_no_word(serving: Serving) -> None:
    said = b""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            nonlocal said
            sock, _ = listener.accept()
            with sock:
                sock.sendall(protocol.hello("r", "h", 1))
                said = read_line(sock)
                sock.sendall(protocol.encode({"ok": True}))
                said += read_line(sock)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DistNetworkError, match="does not have the token"):
            AgentClient.over_tcp("127.0.0.1", listener.getsockname()[1], b"the token")
        thread.join()
    assert set(json.loads(said)) == {"nonce", "dialled"}


def test_the_token_of_one_run_is_worth_nothing_for_another() -> None:
    assert protocol.agent_token(b"key", "r") != protocol.agent_token(b"key", "s")


def test_an_agent_of_an_older_version_is_said_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            sock, _ = listener.accept()
            with sock:
                hello = {"distdbg": "agent", "protocol": 1, "run": "r", "nonce": "n" * 32}
                sock.sendall(protocol.encode(hello))
                assert read_line(sock) == b""

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConfigError, match="speaks protocol 1, this distdbg speaks 2"):
            AgentClient.over_tcp("127.0.0.1", listener.getsockname()[1], b"the token")
        thread.join()


@pytest.mark.slow
def test_idle_strangers_take_no_place_of_others(serving: Serving) -> None:
    def dial() -> socket.socket:
        return socket.create_connection(("127.0.0.1", serving.port), 5)

    idle = [dial() for _ in range(2 * api.MAX_CLIENTS)]
    try:
        with (
            AgentClient.over_tcp("127.0.0.1", serving.port, b"the token") as over_tcp,
            AgentClient.at(serving.path) as at_home,
        ):
            more = [dial() for _ in range(2 * api.MAX_CLIENTS)]
            idle += more
            assert over_tcp.ask("echo", a=1) == {"a": 1}
            assert at_home.ask("echo", a=2) == {"a": 2}
        read_line(idle[0])
        assert is_closed(idle[0])  # the oldest has gone
        assert b"nonce" in read_line(idle[-1])
    finally:
        for sock in idle:
            sock.close()


def test_who_does_not_prove_in_time_is_dropped(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "PROOF_S", 0.1)
    with socket.create_connection(("127.0.0.1", serving.port), 5) as sock:
        read_line(sock)
        assert is_closed(sock)


def test_the_socket_is_private_and_never_taken_from_a_living_agent(serving: Serving) -> None:
    assert serving.path.lstat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="served by another process"):
        sockets.listen(serving.path)


def test_what_a_dead_agent_has_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "run@host.sock"
    sockets.listen(path).close()
    assert path.exists()
    assert not sockets.is_served(path)
    assert not path.exists()
    sockets.listen(path).close()
    again = sockets.listen(path)
    assert sockets.is_served(path)
    again.close()
    assert os.listdir(tmp_path) == ["run@host.sock"]
