"""The addresses of this machine's network interfaces, as far as others may reach them."""

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

_SIOCGIFADDR: Final = 0x8915
_SIOCGIFFLAGS: Final = 0x8913
_IFF_UP: Final = 1
#: Flags of an IPv6 address that cannot be used (yet): tentative, failed as a duplicate.
_UNUSABLE: Final = 0x40 | 0x08


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
