"""Finds the address at which other hosts reach this process: the user's, else where the store's route begins.

DISTDBG_SOCKET_IFNAME   interfaces in order of preference: "ib0,eth0"; GLOO_SOCKET_IFNAME where it is not set
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress

from distdbg.config import read_setting
from distdbg.errors import ConfigError
from distdbg.runtime.net.interfaces import Interface, choose_interface, list_interfaces
from distdbg.runtime.store.names import look_up

#: A port that nobody has to listen at: nothing is sent.
_ANY_PORT = 9


def own_address(store_host: str | None, is_one_machine: bool) -> str:
    """The address to listen at.

    `store_host`: where the ranks met, if that is a host. `is_one_machine`: all ranks can reach this one's
    loopback interface. ConfigError when no named interface is there, or none at all.
    """
    wanted = read_setting("DISTDBG_SOCKET_IFNAME")
    interfaces = list_interfaces()
    if wanted:
        named = choose_interface(interfaces, str(wanted))
        if named is None:
            raise ConfigError(
                f"DISTDBG_SOCKET_IFNAME={wanted}: no such interface is up on {socket.gethostname()}",
                details=[_show(interfaces)],
                hint="name one of these, or unset it",
            )
        return named.address
    if is_one_machine:
        return "127.0.0.1"
    route = route_to(store_host) if store_host else None
    if route is not None:
        return route
    return _first(interfaces, _addresses_of(socket.gethostname()))


def route_to(host: str) -> str | None:
    """The address of this host that packets to `host` leave from; None: no way, or none out of this host."""
    with suppress(OSError):
        for family, _, _, _, target in look_up(host, _ANY_PORT):
            with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(target)
                address = str(probe.getsockname()[0])
                if not Interface("", address).is_loopback:
                    return address
    return None


def _addresses_of(name: str) -> list[str]:
    with suppress(OSError):
        return [str(found[4][0]) for found in look_up(name, _ANY_PORT)]
    return []


def _first(interfaces: Sequence[Interface], preferred: Sequence[str]) -> str:
    reachable = [each for each in interfaces if not each.is_loopback]
    for each in reachable:
        if each.address in preferred:
            return each.address
    if not reachable:
        raise ConfigError(
            f"{socket.gethostname()} has no network interface that other hosts could reach",
            details=[_show(interfaces)],
            hint="name one with DISTDBG_SOCKET_IFNAME",
        )
    return reachable[0].address


def _show(interfaces: Sequence[Interface]) -> str:
    return "interfaces: " + (", ".join(f"{i.name} {i.address}" for i in interfaces) or "none")
