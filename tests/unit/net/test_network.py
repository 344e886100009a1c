"""What a made-up network does to packets."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from tests.support.network import change_data


def checksum(packet: bytes) -> int:
    """Of the header and data of TCP, with its own field as it is: 0 where that is right."""
    tcp = packet[20:]
    pseudo = packet[12:20] + struct.pack("!BBH", 0, socket.IPPROTO_TCP, len(tcp))
    words = pseudo + tcp + b"\0" * (len(tcp) % 2)
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def make_packet(data: bytes, options: int = 12) -> bytes:
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 0, 0, 0, 64, 6, 0, b"\x0a\x4d\0\1", b"\x0a\x4d\0\2")
    tcp = struct.pack("!HHIIBBHHH", 1, 2, 3, 4, (20 + options) << 2, 16, 5, 0, 0) + bytes(options)
    packet = bytearray(ip + tcp + data)
    packet[36:38] = checksum(bytes(packet)).to_bytes(2)
    return bytes(packet)


@pytest.mark.parametrize("nbytes", [1, 2, 3, 100, 1001])
def test_data_are_changed_so_that_tcp_does_not_see_it(nbytes: int) -> None:
    chance = random.Random(nbytes)
    for _ in range(50):
        packet = make_packet(chance.randbytes(nbytes))
        assert checksum(packet) == 0
        changed = change_data(packet, chance)
        assert sum(a != b for a, b in zip(packet[52:], changed[52:], strict=True)) == 1
        assert packet[:36] == changed[:36]
        assert packet[38:52] == changed[38:52]
        assert checksum(changed) == 0


def test_a_packet_without_data_stays_as_it_is() -> None:
    packet = make_packet(b"")
    assert change_data(packet, random.Random(1)) is packet
    datagram = packet[:9] + bytes([socket.IPPROTO_UDP]) + packet[10:] + b"data"
    assert change_data(datagram, random.Random(1)) is datagram
