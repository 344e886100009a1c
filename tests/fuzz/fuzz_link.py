"""What another host says to a rank: handshakes and frames, a little wrong. Nobody else suffers from it."""

from __future__ import annotations

import hmac
import os
import random
import resource
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Final

from distdbg.control import dialled_address
from distdbg.native import Group, NativeError, TcpHub
from tests.fuzz import harness

TOKEN: Final = b"token"
COOKIE: Final = 77
_SLOT_NBYTES: Final = 4096
_MOST_GROWN_KIB: Final = 64 << 10
#: Types of frames: those of collectives, of messages, of notices; and none.
_TYPES: Final = (0, 1, 2, 3, 0x100, 0x101, 0x102, 9, 2**32 - 1)
_SIZES: Final = (0, 1, 8, 16, 64, 100, 4096, 1 << 16, 1 << 20, 1 << 31, 2**63, 2**64 - 2, 2**64 - 1)


def one(chance: random.Random) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hub = TcpHub("127.0.0.1", "0", TOKEN)
    has_sums = chance.random() < 0.3
    group = Group.create(
        2, _SLOT_NBYTES, 4096, 1, 0, 0, False, 0, 0, 0, [0, 1], hub, COOKIE, ["", ""], 5.0, has_sums
    )
    wrong: list[BaseException] = []
    peer = threading.Thread(target=_misbehave, args=(hub.address, chance, has_sums, wrong))
    peer.start()
    try:
        deadline_ns = time.monotonic_ns() + chance.choice((5, 30)) * 1_000_000
        with suppress(NativeError):
            group.join(deadline_ns, [])
            group.measure_links([0, 1], deadline_ns)
        peer.join()
        with suppress(NativeError):
            group.look()
        with _reach(hub.address) as sock:  # of somebody who means well
            assert _shake_hands(sock, chance, kind=0, options=has_sums)
    finally:
        peer.join()
        group.close()
        hub.close()
    assert not wrong, wrong
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < _MOST_GROWN_KIB, f"{grown} KiB more"


def _misbehave(
    address: str, chance: random.Random, has_sums: bool, wrong: list[BaseException]
) -> None:
    try:
        for _ in range(chance.randint(1, 3)):
            with suppress(OSError), _reach(address) as sock:
                _say(sock, chance, has_sums)
    except BaseException as error:  # a thread's error is nobody's
        wrong.append(error)


def _say(sock: socket.socket, chance: random.Random, has_sums: bool) -> None:
    options = chance.choice((0, 1, 2**31)) if chance.random() < 0.1 else has_sums
    if chance.random() < 0.3:
        _shake_hands(sock, chance, kind=0, spoils=True)
    elif _shake_hands(sock, chance, kind=chance.choice((0, 0, 0, 1, 2)), options=options):
        sock.sendall(_frames(chance, has_sums))
        if chance.random() < 0.5:
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.02)
            while sock.recv(1 << 16):
                pass


def _reach(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=5)


def _shake_hands(
    sock: socket.socket,
    chance: random.Random,
    *,
    kind: int,
    options: int = 0,
    spoils: bool = False,
) -> bool:
    """Whether the hub has proven itself, and heard a proof."""

    def send(data: bytes) -> None:
        sock.sendall(harness.spoil(data, chance) if spoils and chance.random() < 0.5 else data)

    hello = _take(sock, 48)
    assert hello[:8] == b"distdbgH"
    if spoils:
        sock.settimeout(1)  # the hub waits longer for what a shortened request lacks
    request = b"distdbgL" + struct.pack("<IIQII", 4, kind, COOKIE, 1, 0) + os.urandom(32)
    request += dialled_address.pack(*sock.getpeername()) + dialled_address.pack(*sock.getsockname())
    request += struct.pack("<I", options)
    send(request)
    verdict = _take(sock, 40)
    if len(verdict) < 40 or verdict[0] != 1:
        return False
    said = hello[16:] + request
    assert spoils or verdict[8:] == _prove(b"distdbg link 1 hub", said)
    send(_prove(b"distdbg link 1 dialler", said))
    return True


def _take(sock: socket.socket, nbytes: int) -> bytes:
    with suppress(OSError):
        return sock.recv(nbytes, socket.MSG_WAITALL)
    return b""


def _prove(role: bytes, said: bytes) -> bytes:
    return hmac.digest(TOKEN, role + said, "sha256")


def _frames(chance: random.Random, has_sums: bool) -> bytes:
    """Right ones, as rank 1 would join and measure, and others."""
    slot = bytes(64)
    frames = [_frame(64, 0, rank=1, gate=1, flags=chance.choice((0, 1)), payload=slot)]
    for _ in range(chance.randint(0, 16)):
        frames.append(_frame(1, 1, payload=b"x"))
    for _ in range(chance.randint(0, 6)):
        nbytes = chance.choice(_SIZES)
        payload = chance.randbytes(min(nbytes, chance.choice((0, 64, 5000))))
        frame = _frame(
            nbytes,
            chance.choice(_TYPES),
            rank=chance.choice((0, 1, 2, 2**31, 2**32 - 1)),
            gate=chance.choice((0, 1, 2, 3, 2**63)),
            seq=chance.choice((0, 1, 2**64 - 1)),
            flags=chance.choice((0, 1, 2, 3, 2**32 - 1)),
            payload=payload,
        )
        frames.insert(chance.randint(0, len(frames)), frame)
    data = b"".join(map(_with_sums, frames) if has_sums else frames)
    return harness.spoil(data, chance) if chance.random() < 0.4 else data


def _frame(
    nbytes: int,
    kind: int,
    *,
    rank: int = 0,
    gate: int = 0,
    seq: int = 0,
    flags: int = 0,
    payload: bytes = b"",
) -> bytes:
    head = struct.pack("<QIIQQI", nbytes, kind, rank, gate, seq, flags)
    return head + bytes(64 - len(head)) + payload


def _with_sums(frame: bytes) -> bytes:
    head, payload = frame[:64], frame[64:]
    return head + _sum(head) + payload + (_sum(payload) if payload else b"")


def _sum(data: bytes) -> bytes:
    """CRC-32C."""
    total = 0xFFFFFFFF
    for byte in data:
        total = (total >> 8) ^ _SUMS[(total ^ byte) & 0xFF]
    return struct.pack("<I", total ^ 0xFFFFFFFF)


def _sum_of_byte(total: int) -> int:
    for _ in range(8):
        total = (total >> 1) ^ (0x82F63B78 if total & 1 else 0)
    return total


_SUMS: Final = [_sum_of_byte(byte) for byte in range(256)]


if __name__ == "__main__":
    harness.main(one, "fuzz_link", __doc__)
