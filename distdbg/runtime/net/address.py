"""Finds the address at which other hosts reach this process: the user's, else where the store's route begins.

DISTDBG_SOCKET_IFNAME   interfaces in order of preference: "ib0,eth0"; GLOO_SOCKET_IFNAME where it is not set
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from distdbg.config import read_setting
from distdbg.errors import ConfigError
from distdbg.runtime.store.names import look_up

_SIOCGIFADDR: Final = 0x8915
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 1
#: Flags of an IPv6 address that cannot be used (yet): tentative, failed as a duplicate.
_UNUSABLE: Final = 0x40 | 0x08


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


@dataclass(frozen=True, slots=True)
class Interface:
    """One address of one interface that is up."""

    name: str
    address: str

    @property
    def is_loopback(self) -> bool:
        """Whether only this host can reach it."""
        return ipaddress.ip_address(self.address.partition("%")[0]).is_loopback


def list_interfaces() -> list[Interface]:
    """All addresses, IPv4 first, in the order of the kernel's interfaces."""
    names = [name for _, name in socket.if_nameindex()]
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        up = [name for name in names if _flags(asked, name) & _IFF_UP]
        for name in up:
            with suppress(OSError):  # it has no address of IPv4
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
                found.append(Interface(name, socket.inet_ntoa(answer[20:24])))
    with suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as lines:
        found += [
            each
            for line in lines
            if (each := _parse_inet6(line.split())) is not None and each.name in up
        ]
    return found


def choose_interface(interfaces: Sequence[Interface], wanted: str) -> Interface | None:
    """The first address of the first interface that `wanted` names; parted by commas."""
    for name in filter(None, (word.strip() for word in wanted.split(","))):
        for interface in interfaces:
            if interface.name == name:
                return interface
    return None


def _flags(asked: socket.socket, name: str) -> int:
    request = array.array("b", struct.pack("256s", name.encode()[:15]))
    try:
        fcntl.ioctl(asked.fileno(), _SIOCGIFFLAGS, request)
    except OSError:  # it has just gone
        return 0
    return int(struct.unpack_from("h", request, 16)[0])


def _parse_inet6(words: Sequence[str]) -> Interface | None:
    """One line: address, index, length of prefix, scope and flags in hex, name."""
    if len(words) != 6 or int(words[4], 16) & _UNUSABLE:
        return None
    address = ipaddress.IPv6Address(int(words[0], 16))
    # Only together with the interface it says where to.
    scope = f"%{words[5]}" if address.is_link_local else ""
    return Interface(words[5], f"{address}{scope}")
