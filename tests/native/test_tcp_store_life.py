"""A TCPStore from start to end: joining, ports, forks, Ctrl-C, the server's death; nothing is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from distdbg.errors import (
    DistNetworkError,
    DistStoreError,
    NotAuthenticatedError,
    UsageError,
)
from distdbg.runtime.store import PrefixStore, TCPStore
from distdbg.runtime.store.holder import find_port_holders

TOKEN = b"token"


def serve(port: int = 0, **more: object) -> TCPStore:
    return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, _token=TOKEN, **more)  # type: ignore[arg-type]


def join(port: int, **more: object) -> TCPStore:
    return TCPStore("127.0.0.1", port, _token=TOKEN, **more)  # type: ignore[arg-type]


def in_thread(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


def test_the_port_is_free_again_after_close() -> None:
    store = serve()
    port = store.port
    assert find_port_holders(port)
    store.close()
    store.close()
    with pytest.raises(DistStoreError, match="closed"):
        store.get("key")
    again = serve(port)
    assert again.port == port
    again.close()


def test_garbage_collection_closes_the_server() -> None:
    store = serve()
    port = store.port
    del store
    assert not find_port_holders(port)


def test_a_taken_port_names_who_holds_it() -> None:
    program = "import socket,sys; s=socket.create_server(('127.0.0.1',0)); "
    program += "print(s.getsockname()[1],flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        port = int(holder.stdout.readline())
        with pytest.raises(
            DistNetworkError, match=rf"socket.create_server.* \(pid {holder.pid}, user "
        ):
            serve(port)
        holder.communicate("")


def test_only_the_named_interface_is_bound() -> None:
    store = serve()
    other_loopback = socket.socket()
    try:
        with pytest.raises(ConnectionRefusedError):
            other_loopback.connect(("127.0.0.2", store.port))
    finally:
        other_loopback.close()
        store.close()


def test_a_host_that_is_not_this_one_cannot_be_served() -> None:
    with pytest.raises(DistNetworkError, match="not an address of this host"):
        TCPStore("192.0.2.1", 0, is_master=True, _token=TOKEN)  # a documentation address


def test_clients_wait_for_a_server_that_comes_later() -> None:
    probe = serve()
    port = probe.port
    probe.close()
    stores: list[TCPStore] = []
    thread, errors = in_thread(lambda: stores.append(join(port, timeout=60)))
    server = serve(port)
    thread.join()
    assert not errors
    stores[0].set("key", "1")
    assert server.get("key") == b"1"
    stores[0].close()
    server.close()


def test_nobody_there_says_where_how_long_and_why() -> None:
    with pytest.raises(DistNetworkError, match=r"127.0.0.1:1: cannot connect within 0\.10 s: Conn"):
        join(1, timeout=0.1)


def test_the_server_waits_for_all_clients_and_counts_them() -> None:
    with pytest.raises(DistStoreError, match=r"1 of 2 clients joined") as caught:
        TCPStore("127.0.0.1", 0, 2, True, timeout=0.1, _token=TOKEN)
    assert f"pid {os.getpid()}" in caught.value.details[0]

    probe = serve()
    port = probe.port
    probe.close()
    stores: list[TCPStore] = []
    thread, errors = in_thread(
        lambda: stores.append(TCPStore("127.0.0.1", port, 2, True, timeout=60, _token=TOKEN))
    )
    client = join(port, world_size=2, timeout=60)
    thread.join()
    assert not errors
    client.close()
    stores[0].close()


def test_tenants_of_one_process_share_a_server() -> None:
    first = serve(multi_tenant=True)
    second = serve(first.port, multi_tenant=True)
    first.set("key", "1")
    assert second.get("key") == b"1"
    first.close()
    assert second.get("key") == b"1"  # the last owner keeps it
    port = second.port
    second.close()
    assert not find_port_holders(port)
    held = serve()
    with pytest.raises(DistNetworkError, match="this process"):
        serve(held.port)
    held.close()


def test_a_listening_socket_can_be_handed_over() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    with pytest.raises(UsageError, match=f"is bound to port {port}, not 1"):
        serve(1, master_listen_fd=listener.fileno())
    store = serve(port, master_listen_fd=listener.detach())
    assert store.port == port
    store.close()
    assert not find_port_holders(port)
    with pytest.raises(UsageError, match="not a TCP socket"):
        serve(0, master_listen_fd=999_999)


def test_a_bound_socket_can_be_handed_over_as_in_torch() -> None:
    bound = socket.socket()
    with pytest.raises(UsageError, match="is bound to no port"):
        serve(0, master_listen_fd=bound.fileno())
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    store = serve(port, master_listen_fd=bound.detach())
    store.set("a", b"1")
    assert join(port).get("a") == b"1"
    store.close()
    assert not find_port_holders(port)


def test_who_does_not_know_the_token_is_counted() -> None:
    store = serve()
    assert store.refused() == (0, "")
    for _ in range(2):
        with pytest.raises(NotAuthenticatedError):
            TCPStore("127.0.0.1", store.port, _token=b"another")
    while store.refused()[0] < 2:
        time.sleep(0.001)  # the server reads the end of a connection when it comes to it
    assert store.refused() == (2, "127.0.0.1")
    store.close()


def test_a_blocked_client_learns_at_once_that_the_server_has_gone() -> None:
    server = serve()
    client = join(server.port, timeout=60)
    thread, errors = in_thread(lambda: client.get("never"))
    while client.check(["waiting"]) or server._server.native.count_clients() < 3:  # type: ignore[union-attr]
        pass  # until the blocked get has a connection of its own
    begin = time.monotonic()
    server.close()
    thread.join()
    assert time.monotonic() - begin < 30  # of its own 60 s
    assert isinstance(errors[0], DistNetworkError)
    assert f"127.0.0.1:{client.port} is gone" in str(errors[0])
    with pytest.raises(DistNetworkError):
        client.set("key", "1")
    client.close()


def test_close_ends_a_get_that_blocks_in_another_thread() -> None:
    server = serve()
    client = join(server.port, timeout=60)
    thread, errors = in_thread(lambda: client.get("never"))
    while server._server.native.count_clients() < 2:  # type: ignore[union-attr]
        pass
    client.close()
    thread.join()
    assert isinstance(errors[0], DistStoreError)
    server.close()


def test_a_forked_child_must_not_use_the_store_and_does_not_hurt_it() -> None:
    store = serve()
    view = PrefixStore("x", store)
    view.set("key", "1")
    pid = os.fork()
    if pid == 0:
        try:
            view.get("key")
        except UsageError as error:
            status = 0 if "forked" in str(error) else 2
        except BaseException:
            status = 3
        else:
            status = 4
        store.close()
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert view.get("key") == b"1"
    port = store.port
    store.close()
    assert not find_port_holders(port)


def test_ctrl_c_ends_a_blocked_get_at_once() -> None:
    store = serve()
    store.set_timeout(60)
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))

    def wait() -> None:
        timer.start()  # here: a busy machine may be interrupted before it waits
        store.get("never")

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - begin < 30  # of its own 60 s
    timer.join()
    store.set("key", "1")
    assert store.get("key") == b"1"  # the interrupted request took its connection with it
    store.close()


def test_a_blocked_get_leaves_the_gil_to_others() -> None:
    store = serve()
    thread, _ = in_thread(lambda: store.get("late"))
    ticks = 0
    while ticks < 1000:
        ticks += 1
    assert thread.is_alive()
    store.set("late", "1")
    thread.join()
    store.close()


def test_a_clone_keeps_the_server_alive() -> None:
    store = serve()
    other = store.clone()
    store.set("key", "1")
    store.close()
    assert other.get("key") == b"1"
    other.close()


def test_multi_get_of_more_than_one_message_holds() -> None:
    store = serve(_value_nbytes=1 << 20)
    names = [f"key{number}" for number in range(6)]
    values = [bytes([number]) * (1 << 20) for number in range(6)]
    store.multi_set(names, values)
    assert store.multi_get(names) == values
    store.close()
