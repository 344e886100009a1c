"""Who shares memory with whom, and which address other hosts are told."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
from typing import Any

import pytest

from distdbg.errors import ConfigError
from distdbg.runtime.net import address
from distdbg.runtime.net.address import Interface, choose_interface, list_interfaces, own_address
from distdbg.runtime.net.hosts import find_hosts, host_of_rank, is_one_machine
from distdbg.runtime.rendezvous.process import ProcessIdentity
from distdbg.runtime.store import names


def process(boot: str = "a", pids: int = 1, net: int = 1, host: str = "n") -> ProcessIdentity:
    return ProcessIdentity(
        host=host, boot_id=boot, pid_namespace=pids, pid=7, started=1, net_namespace=net
    )


def test_ranks_of_one_kernel_and_pid_namespace_are_on_one_host() -> None:
    members = [process("a"), process("b"), process("a", pids=2), process("b"), process("a")]
    assert find_hosts(members) == ((0, 4), (1, 3), (2,))
    assert host_of_rank(find_hosts(members)) == [0, 1, 2, 1, 0]


def test_names_are_no_criterion() -> None:
    members = [process(host="x"), process(host="y"), process(boot="b", host="x")]
    assert find_hosts(members) == ((0, 1), (2,))


def test_each_rank_alone() -> None:
    assert find_hosts([process()] * 3, is_each_alone=True) == ((0,), (1,), (2,))


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (process(pids=5), True),
        (process(net=2), False),
        (process(boot="b"), False),
    ],
)
def test_one_machine_has_one_loopback_interface(other: ProcessIdentity, expected: bool) -> None:
    assert is_one_machine([process(), other]) is expected


def test_what_is_not_known_is_not_assumed() -> None:
    assert not is_one_machine([process(net=0), process(net=0)])


def test_the_first_interface_that_is_there_counts() -> None:
    here = [
        Interface("lo", "127.0.0.1"),
        Interface("eth0", "10.0.0.5"),
        Interface("eth0", "fd00::5"),
    ]
    chosen = choose_interface(here, "ib0, eth0,lo")
    assert chosen == Interface("eth0", "10.0.0.5")
    assert choose_interface(here, "ib0") is None


def test_this_machine_has_a_loopback_interface() -> None:
    found = list_interfaces()
    assert Interface("lo", "127.0.0.1") in found
    assert all(each.is_loopback == (each.name == "lo") for each in found if each.name == "lo")


def test_a_named_interface_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nosuch0")
    with pytest.raises(ConfigError, match="nosuch0: no such interface is up") as caught:
        own_address("127.0.0.1", True)
    assert "lo 127.0.0.1" in str(caught.value)
    monkeypatch.setenv("DISTDBG_SOCKET_IFNAME", "lo")
    assert own_address("10.1.2.3", False) == "127.0.0.1"


def test_a_resolver_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()

    def ask(*_: object, **__: object) -> list[Any]:
        is_over.wait()
        return []

    monkeypatch.setattr(names.look_up, "__kwdefaults__", {"limit_s": 0.05, "ask": ask})
    try:
        assert address.route_to("silent.example") is None
        assert address._addresses_of("silent.example") == []
    finally:
        is_over.set()


def test_without_a_name_it_is_where_the_route_to_the_store_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def use(**here: Any) -> None:
        for name, value in here.items():
            monkeypatch.setattr(address, name, value)

    here = [
        Interface("lo", "127.0.0.1"),
        Interface("eth0", "10.0.0.5"),
        Interface("eth1", "10.1.0.5"),
    ]
    use(
        list_interfaces=lambda: here,
        route_to=lambda host: "10.1.0.5",
        _addresses_of=lambda name: [],
    )
    assert own_address("master", False) == "10.1.0.5"
    assert own_address("master", True) == "127.0.0.1"
    assert own_address(None, False) == "10.0.0.5"
    use(route_to=lambda host: None, _addresses_of=lambda name: ["127.0.1.1", "10.1.0.5"])
    assert own_address("master", False) == "10.1.0.5"
    use(list_interfaces=lambda: here[:1])
    with pytest.raises(ConfigError, match="no network interface that other hosts could reach"):
        own_address(None, False)


def test_of_the_addresses_of_a_name_the_first_counts_that_leads_out_of_this_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name may stand for 127.0.1.1 at home, and begin with an address of IPv6 that leads nowhere."""
    routes = {"::1": "::1", "127.0.1.1": "127.0.0.1", "10.0.0.9": "10.0.0.5"}

    class Probe(contextlib.nullcontext[Any]):
        def __init__(self, family: int, kind: int) -> None:
            super().__init__(self)

        def connect(self, target: tuple[str, int]) -> None:
            if target[0] not in routes:
                raise OSError(errno.ENETUNREACH, "Network is unreachable")
            self.own = routes[target[0]]

        def getsockname(self) -> tuple[str, int]:
            return self.own, 1

    names_of = {"away": ["2001:db8::7", "::1", "127.0.1.1", "10.0.0.9"], "home": ["127.0.1.1"]}

    def ask(host: str, port: int, **_: object) -> list[Any]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in names_of.get(host, [])
        ]

    monkeypatch.setattr(names.look_up, "__kwdefaults__", {"limit_s": 60.0, "ask": ask})
    monkeypatch.setattr(socket, "socket", Probe)
    here = [Interface("lo", "127.0.0.1"), Interface("eth0", "10.0.0.5")]
    monkeypatch.setattr(address, "list_interfaces", lambda: here)
    assert address.route_to("away") == own_address("away", False) == "10.0.0.5"
    assert address.route_to("home") is None
    assert own_address("home", False) == "10.0.0.5"
