"""What TCPStore, FileStore, HashStore and PrefixStore promise on top of a store."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import distdbg as dist
from tests.parity.promise import promise
from tests.support.ports import free_port

HOST = "127.0.0.1"


@promise("The classes of stores are subclasses of `Store`")
def test_stores_are_stores() -> None:
    for kind in (dist.TCPStore, dist.FileStore, dist.HashStore, dist.PrefixStore):
        assert issubclass(kind, dist.Store)


@promise("A `TCPStore` is served by one process; clients connect by host and port")
def test_tcp_server_and_client() -> None:
    server = dist.TCPStore(HOST, 0, 2, True, timedelta(seconds=30), wait_for_workers=False)
    client = dist.TCPStore(HOST, server.port, 2, False)
    server.set("first_key", "first_value")
    assert client.get("first_key") == b"first_value"
    client.set("second_key", "x")
    assert server.get("second_key") == b"x"
    client.close()
    server.close()


@promise("`TCPStore` takes port 0 for a free one; `host` and `port` show where it is served")
def test_tcp_port_0() -> None:
    store = dist.TCPStore(HOST, 0, is_master=True)
    assert store.host == HOST
    assert store.port > 0
    with socket.create_connection((HOST, store.port), 5):
        pass
    store.close()


@promise("With `wait_for_workers` the server waits until `world_size` users have come")
def test_tcp_waits_for_workers() -> None:
    port = free_port()
    made: list[dist.TCPStore] = []
    thread = threading.Thread(target=lambda: made.append(dist.TCPStore(HOST, port, 2, True)))
    thread.start()
    client = dist.TCPStore(HOST, port, 2, False)
    thread.join()
    assert made[0].port == port
    client.close()
    made[0].close()


@promise("The server raises when not all workers come within the timeout")
def test_tcp_workers_do_not_come() -> None:
    with pytest.raises(dist.DistStoreError, match="1 of 2"):
        dist.TCPStore(HOST, 0, 2, True, timedelta(milliseconds=50))


@promise("Without `world_size` any number of clients may come, and nobody waits for them")
def test_tcp_without_world_size() -> None:
    server = dist.TCPStore(HOST, 0, is_master=True)
    clients = [dist.TCPStore(HOST, server.port) for _ in range(3)]
    clients[2].set("key", "x")
    assert clients[0].get("key") == b"x"
    for client in clients:
        client.close()
    server.close()


@promise("The timeout given to `TCPStore` is that of its `get` and `wait`; 300 s if none is given")
def test_tcp_timeout() -> None:
    server = dist.TCPStore(HOST, 0, is_master=True)
    assert server.timeout == timedelta(seconds=300)
    client = dist.TCPStore(HOST, server.port, timeout=timedelta(milliseconds=20))
    with pytest.raises(dist.DistStoreError):
        client.get("absent")
    client.close()
    server.close()


@promise("A client that reaches no server raises `DistNetworkError` after its timeout")
def test_tcp_no_server() -> None:
    with pytest.raises(dist.DistNetworkError):
        dist.TCPStore(HOST, free_port(), timeout=timedelta(milliseconds=100))


@promise("A port that another server has is refused with `DistNetworkError`")
def test_tcp_port_in_use() -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        with pytest.raises(dist.DistNetworkError, match=str(other.getsockname()[1])):
            dist.TCPStore(HOST, other.getsockname()[1], is_master=True)


@promise("With `multi_tenant` the servers of one process at one port are the same")
def test_tcp_multi_tenant() -> None:
    first = dist.TCPStore(HOST, 0, is_master=True, multi_tenant=True)
    second = dist.TCPStore(HOST, first.port, is_master=True, multi_tenant=True)
    first.set("key", "shared")
    first.close()
    assert second.get("key") == b"shared"
    second.close()


@promise(
    "`master_listen_fd` is a socket that is bound, on which the server listens",
    here="more",
    note="it may listen already",
)
@pytest.mark.parametrize("listens", [False, True])
def test_tcp_listen_fd(listens: bool) -> None:
    listener = socket.socket()
    listener.bind((HOST, 0))
    if listens:
        listener.listen()
    port = listener.getsockname()[1]
    store = dist.TCPStore(HOST, port, is_master=True, master_listen_fd=listener.detach())
    client = dist.TCPStore(HOST, port)
    client.set("key", "x")
    assert store.get("key") == b"x"
    client.close()
    store.close()


@promise(
    "A `TCPStore` answers whoever reaches its port",
    here="stricter",
    note="a client must prove that it knows the token of the run",
)
def test_tcp_token() -> None:
    server = dist.TCPStore(HOST, 0, is_master=True, _token=b"a" * 32)
    with pytest.raises(dist.DistNetworkError, match="token"):
        dist.TCPStore(HOST, server.port, timeout=timedelta(seconds=20), _token=b"b" * 32)
    server.close()


@promise("Users of one file share a `FileStore`")
def test_file_store_is_shared(tmp_path: Path) -> None:
    path = str(tmp_path / "filestore")
    first, second = dist.FileStore(path, 2), dist.FileStore(path, 2)
    first.set("first_key", "first_value")
    assert second.get("first_key") == b"first_value"
    assert first.path == path
    first.close()
    second.close()


@promise("The last of `world_size` users removes the file of a `FileStore`")
def test_file_store_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "filestore"
    first, second = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


@promise("Without `world_size` the file of a `FileStore` stays")
def test_file_store_stays(tmp_path: Path) -> None:
    path = tmp_path / "filestore"
    store = dist.FileStore(str(path))
    store.set("key", "x")
    store.close()
    assert path.exists()


@promise("A `HashStore` serves the threads of one process")
def test_hash_store_between_threads() -> None:
    store = dist.HashStore()
    thread = threading.Thread(target=lambda: store.set("first_key", "first_value"))
    thread.start()
    assert store.get("first_key") == b"first_value"
    thread.join()


@promise("A `PrefixStore` puts its prefix before each key of the store below")
def test_prefix_store() -> None:
    below = dist.HashStore()
    store = dist.PrefixStore("prefix", below)
    store.set("key", "x")
    assert below.get("prefix/key") == b"x"
    assert not below.check(["key"])
    assert not dist.PrefixStore("other", below).check(["key"])


@promise("`underlying_store` of a `PrefixStore` is the store that it was given")
def test_underlying_store() -> None:
    below = dist.HashStore()
    assert dist.PrefixStore("prefix", below).underlying_store is below


@promise("Prefixes nest")
def test_prefixes_nest() -> None:
    below = dist.HashStore()
    dist.PrefixStore("inner", dist.PrefixStore("outer", below)).set("key", "x")
    assert below.get("outer/inner/key") == b"x"
