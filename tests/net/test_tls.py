"""Connections under DISTDBG_TLS=1: who is let in, what strangers get, and one end without TLS."""

from __future__ import annotations

import errno
import os
import re
import selectors
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from distdbg.agent.api import ApiClient, ApiServer
from distdbg.client import protocol
from distdbg.client.agent_client import AgentClient
from distdbg.client.protocol import Request
from distdbg.errors import ConfigError, DistError, NotAuthenticatedError, UsageError
from distdbg.export.http.access import AccessGate
from distdbg.export.http.pages import PageAnswer
from distdbg.export.http.server import Server
from distdbg.export.otel.collector import read_context
from distdbg.hosts.handshake import Handshake
from distdbg.hosts.links import Link, LinkLost
from distdbg.runtime.store import TCPStore
from distdbg.secure import relay
from distdbg.secure.contexts import NAME, certificate_pem, derive_pair
from distdbg.secure.guard import Guard, open_guard, why_ended
from distdbg.secure.settings import Files, TlsSettings, read_settings

TOKEN = b"a token"


@pytest.fixture(autouse=True)
def _tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTDBG_TLS", "1")


def made(token: bytes = TOKEN, **how: object) -> Guard:
    guard = open_guard(token, **how)  # type: ignore[arg-type] # of several types
    assert guard is not None
    return guard


@contextmanager
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A client's and a server's end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), 10)
        server, _ = listener.accept()
    server.settimeout(10)
    with client, server:
        yield client, server


@contextmanager
def secured(client_guard: Guard, server_guard: Guard) -> Iterator[list[socket.socket]]:
    with connected() as (client, server):
        ends = [
            client_guard.wrap(client, is_server=False),
            server_guard.wrap(server, is_server=True),
        ]
        try:
            yield ends
        finally:
            for end in ends:
                end.close()
            client_guard.close()
            server_guard.close()


def why(end: socket.socket) -> str:
    """Why a connection has ended, once it has."""
    try:
        while end.recv(1 << 16):
            continue
    except ConnectionResetError:
        pass  # it had not read all
    return why_ended(end)


# Both ways -----------------------------------------------------------------------------------


def test_what_is_sent_arrives_whole_both_ways_and_so_does_the_end() -> None:
    with secured(made(), made()) as (client, server):
        client.sendall(b"hello")
        assert server.recv(100) == b"hello"
        answer = os.urandom(3_000_000)
        client.settimeout(20)
        sender = threading.Thread(target=server.sendall, args=(answer,))
        sender.start()
        got = bytearray()
        while len(got) < len(answer):
            got += client.recv(1 << 20)
        sender.join()
        assert got == answer
        client.shutdown(socket.SHUT_WR)
        assert server.recv(1) == b""
        server.sendall(b"still there")  # the other direction goes on
        assert client.recv(100) == b"still there"
        server.close()
        assert client.recv(1) == b""
        assert why_ended(client) == ""


def test_what_was_sent_before_the_guard_is_closed_still_arrives() -> None:
    client_guard, server_guard = made(), made()
    with secured(client_guard, server_guard) as (client, server):
        client.sendall(b"x" * 100_000)
        client.close()
        client_guard.close()
        got = b""
        while data := server.recv(1 << 20):
            got += data
        assert len(got) == 100_000


# Who is let in -------------------------------------------------------------------------------


def test_all_processes_derive_one_certificate_from_a_token() -> None:
    assert derive_pair(TOKEN) == derive_pair(TOKEN)
    assert derive_pair(TOKEN) != derive_pair(b"another")
    assert certificate_pem(TlsSettings(), TOKEN).encode() == derive_pair(TOKEN).certificate


def test_another_token_is_refused_and_both_ends_know_why() -> None:
    with secured(made(), made(b"another")) as (client, server):
        assert "its certificate is not trusted: it has another token" in why(client)
        assert "it does not trust the certificate of this end" in why(server)


def test_a_client_without_a_certificate_is_refused() -> None:
    guard = made()
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(client) as stranger, pytest.raises(ssl.SSLError):
            stranger.recv(1)
        assert why(end) == "it shows no certificate"
        end.close()
        guard.close()


def issue(
    folder: Path, name: str, ca: tuple[x509.Name, Ed25519PrivateKey] | None, days: int
) -> tuple[x509.Name, Ed25519PrivateKey]:
    """Write NAME.crt and NAME.key; ca None: an authority."""
    key = Ed25519PrivateKey.generate()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = (subject, key) if ca is None else ca
    until = datetime.now(UTC) + timedelta(days=days)
    certificate = (
        x509.CertificateBuilder(
            issuer, subject, key.public_key(), 7, until - timedelta(days=10), until
        )
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .sign(signer, None)
    )
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return subject, key


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
    for variable, file in (("CERT", f"{name}.crt"), ("KEY", f"{name}.key"), ("CA", "ca.crt")):
        monkeypatch.setenv(f"DISTDBG_TLS_{variable}", str(folder / file))


@pytest.mark.parametrize(
    ("days", "expected"), [(5, ""), (-1, "its certificate is not trusted.*expired")]
)
def test_certificates_of_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, days: int, expected: str
) -> None:
    ca = issue(tmp_path, "ca", None, 9)
    issue(tmp_path, "one", ca, 9)
    issue(tmp_path, "two", ca, days)
    use(monkeypatch, tmp_path, "one")
    client_guard = made()
    use(monkeypatch, tmp_path, "two")
    with secured(client_guard, made(b"a token has no part in it")) as (client, server):
        if expected:
            assert re.match(expected, why(client))
        else:
            server.sendall(b"hello")
            assert client.recv(100) == b"hello"


def test_half_of_the_users_files_or_a_broken_one_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="not set: DISTDBG_TLS_KEY, DISTDBG_TLS_CA"):
        read_settings({"DISTDBG_TLS": "1", "DISTDBG_TLS_CERT": "a.pem"})
    use(monkeypatch, tmp_path, "none")
    with pytest.raises(ConfigError, match=r"DISTDBG_TLS_CERT=.*none\.crt cannot be read"):
        open_guard(TOKEN)
    for file in ("none.crt", "none.key", "ca.crt"):
        (tmp_path / file).write_text("no certificate")
    with pytest.raises(ConfigError, match="the certificates cannot be loaded"):
        open_guard(TOKEN)
    assert read_settings({"DISTDBG_TLS": "0", "DISTDBG_TLS_CERT": "a.pem"}) is None
    settings = TlsSettings(Files(tmp_path / "a", tmp_path / "b", tmp_path / "none.crt"))
    assert certificate_pem(settings, TOKEN) == "no certificate"


# Strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 1000, b"\x16\x03" * 5000])
def test_garbage_ends_the_connection_at_once(garbage: bytes) -> None:
    guard = made()
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        client.sendall(garbage)
        assert "TLS" in why(end)
        end.close()
        guard.close()


def test_who_is_silent_is_told_of_tls_and_dropped() -> None:
    guard = made(silence_s=0.05, notice=b"there is TLS here")
    with connected() as (client, server):
        end = guard.wrap(server, is_server=True)
        assert client.recv(100) == b"there is TLS here"
        assert client.recv(1) == b""
        assert "DISTDBG_TLS=1 is set here" in why(end)
        end.close()
        guard.close()


def test_a_server_that_speaks_no_tls_is_named() -> None:
    guard = made()
    with connected() as (client, server):
        end = guard.wrap(client, is_server=False)
        server.sendall(b"distdbgH")
        assert "it does not speak TLS, and DISTDBG_TLS=1 is set here" in why(end)
        end.close()
        guard.close()


def test_nobody_who_connects_is_the_failure_of_the_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    sock = socket.socket()
    sock.setblocking(False)
    assert sock.connect_ex(address) in (errno.EINPROGRESS, errno.ECONNREFUSED)
    guard = made()
    end = guard.wrap(sock, is_server=False)
    end.settimeout(10)
    assert why(end) == os.strerror(errno.ECONNREFUSED)
    end.close()
    guard.close()


# Stores --------------------------------------------------------------------------------------


@contextmanager
def store() -> Iterator[TCPStore]:
    with closing(TCPStore("127.0.0.1", 0, is_master=True, _token=TOKEN)) as made_one:
        yield made_one


def test_a_store_under_tls() -> None:
    with store() as server:
        server.set("key", b"v" * 1_000_000)
        with closing(TCPStore("127.0.0.1", server.port, _token=TOKEN)) as other:
            assert other.get("key") == b"v" * 1_000_000
        assert server.refused()[0] == 0


def test_a_store_refuses_another_token() -> None:
    with store() as server, pytest.raises(NotAuthenticatedError, match="another token"):
        TCPStore("127.0.0.1", server.port, _token=b"another")


@pytest.mark.parametrize("is_server_secure", [True, False])
def test_one_end_of_a_store_without_tls_names_the_variable_on_both(
    monkeypatch: pytest.MonkeyPatch, is_server_secure: bool
) -> None:
    monkeypatch.setenv("DISTDBG_TLS", str(int(is_server_secure)))
    with store() as server:
        monkeypatch.setenv("DISTDBG_TLS", str(int(not is_server_secure)))
        began = time.monotonic()
        with pytest.raises(DistError, match="DISTDBG_TLS=1"):
            TCPStore("127.0.0.1", server.port, _token=TOKEN)
        assert time.monotonic() - began < 8
        until = time.monotonic() + 10
        while not server.refused()[0] and time.monotonic() < until:
            time.sleep(0.01)  # its thread notes it when it has seen the end
        assert "DISTDBG_TLS" in server.why_refused()


# What others read ----------------------------------------------------------------------------


def test_pages_over_https_are_read_with_the_certificate_of_the_run() -> None:
    gate = AccessGate(own_uid=os.getuid())
    pages = {"/metrics": lambda _: PageAnswer(b"up 1\n")}
    server = Server(pages, gate, guard=made(is_web=True, notice=b"https please"))
    port = server.listen("127.0.0.1", 0)
    server.start()
    try:
        context = ssl.create_default_context(cadata=certificate_pem(TlsSettings(), TOKEN))
        with (
            socket.create_connection(("127.0.0.1", port), 10) as sock,
            context.wrap_socket(sock, server_hostname=NAME) as secure,
        ):
            secure.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while data := secure.recv(1 << 16):
                answer += data
        assert answer.startswith(b"HTTP/1.1 200")
        assert answer.endswith(b"up 1\n")
        with socket.create_connection(("127.0.0.1", port), 10) as plain:
            plain.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert plain.recv(100) == b"https please"
    finally:
        server.close()


# Agents --------------------------------------------------------------------------------------


class _Answers:
    def do(self, request: Request, client: ApiClient) -> None:
        client.send(protocol.answer(request.id, {"did": request.do}))

    def gone(self, client: ApiClient) -> None:
        """Nothing is kept of it."""


@contextmanager
def agent() -> Iterator[int]:
    """The port of an agent's API."""
    selector = selectors.DefaultSelector()
    server = ApiServer(selector, _Answers(), run="run", host="host")
    port = server.listen_tcp("127.0.0.1", 0, TOKEN)
    end = threading.Event()

    def serve() -> None:
        while not end.is_set():
            for key, mask in selector.select(0.02):
                key.data(mask)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield port
    finally:
        end.set()
        thread.join()
        server.close()
        selector.close()


def test_the_api_of_an_agent_under_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    with agent() as port:
        with AgentClient.over_tcp("127.0.0.1", port, TOKEN) as client:
            assert client.ask("ranks") == {"did": "ranks"}
        with pytest.raises(DistError, match="another token"):
            AgentClient.over_tcp("127.0.0.1", port, b"another")
        monkeypatch.setenv("DISTDBG_TLS", "0")
        with pytest.raises(ConfigError, match="speaks TLS"):
            AgentClient.over_tcp("127.0.0.1", port, TOKEN)


@pytest.mark.parametrize("token", [TOKEN, b"another"])
def test_a_link_of_the_agents_tree_under_tls(token: bytes) -> None:
    guards = made(token), made()
    with secured(*guards) as (client, server):
        for end in (client, server):
            end.setblocking(False)
        child = Link(1, client, Handshake(token, "run/0", 3), "parent", 0)
        parent = Link(2, server, Handshake(TOKEN, "run/0", None), "child", 0)

        def pass_on() -> None:
            until = time.monotonic() + 10
            while not (child.is_open and parent.is_open) and time.monotonic() < until:
                for link in (child, parent):
                    link.flush()
                    link.read(0)
                time.sleep(0.001)  # nothing else announces what has come

        if token == TOKEN:
            pass_on()
            assert child.is_open
            assert parent.is_open
            assert parent.handshake.node == 3
        else:
            with pytest.raises(LinkLost, match="certificate") as caught:
                pass_on()
            assert caught.value.is_wrong


def test_a_collector_is_trusted_by_the_variables_of_opentelemetry(tmp_path: Path) -> None:
    assert read_context({}) is None
    ca = issue(tmp_path, "ca", None, 9)
    issue(tmp_path, "one", ca, 9)
    names = {
        "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "ca.crt"),
        "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": str(tmp_path / "one.crt"),
        "OTEL_EXPORTER_OTLP_CLIENT_KEY": str(tmp_path / "one.key"),
    }
    context = read_context(names)
    assert context is not None
    [trusted] = context.get_ca_certs()
    assert trusted["subject"] == ((("commonName", "ca"),),)
    with pytest.raises(UsageError, match="cannot be loaded"):
        read_context({**names, "OTEL_EXPORTER_OTLP_CERTIFICATE": str(tmp_path / "none")})


def test_without_the_variable_nothing_of_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTDBG_TLS")
    program = (
        "import sys, distdbg.runtime.net.hub\n"
        "print({'ssl', 'distdbg.secure.relay'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.strip() == b"set()"
    assert open_guard(TOKEN) is None


def test_a_fork_after_the_last_connection_takes_no_descriptor_of_others() -> None:
    with secured(made(), made()) as (client, server):
        client.sendall(b"x")
        assert server.recv(1) == b"x"
    found = relay._relay
    assert found is not None
    until = time.monotonic() + 30
    while not found.is_over:
        assert time.monotonic() < until
        time.sleep(0.005)
    others = [os.dup(2) for _ in range(8)]  # the numbers that the relay had are among these
    try:
        child = os.fork()
        if child == 0:
            os._exit(sum(not is_open(fd) for fd in others))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        for fd in others:
            os.close(fd)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
