"""The connections that appeared since, and only those, are closed."""

from __future__ import annotations

import socket

from distdbg.torch_bridge.tap.sockets import new_since, open_sockets, shut_down


def test_connections_that_appeared_since_are_closed_and_others_stay() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        old = socket.create_connection(server.getsockname())
        old_side, _ = server.accept()
        before = open_sockets()
        new = socket.create_connection(server.getsockname())
        new_side, _ = server.accept()
        assert shut_down(new_since(before)) == 2
        assert new_side.recv(1) == b""
        old.sendall(b"x")
        assert old_side.recv(1) == b"x"
        for each in (old, old_side, new, new_side):
            each.close()


def test_a_number_that_is_another_sockets_now_is_left_alone() -> None:
    one, two = socket.socketpair()
    with one, two:
        assert shut_down({one.fileno(): -1}) == 0
