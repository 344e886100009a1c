"""Hosts made of namespaces: each has its own network, processes and name. What is between them obeys a test.

A host is a set of Linux namespaces with a TUN device; a thread here carries the packets from one to another,
so that no kernel module and no tool is needed to lose, delay or withhold them.
"""

from __future__ import annotations

import heapq
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType

_NAMESPACES = ("--net", "--uts", "--pid", "--mount")
_UNSHARE = (
    "unshare",
    "--map-root-user",
    *_NAMESPACES[:3],
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_MTU = 9000
#: What is on its way from one host to another at most; more is dropped, as by a switch.
_MOST_QUEUED_NBYTES = 8 << 20

#: Makes the device of a host, hands it over, and lives as long as the host.
_INIT = """
import array, fcntl, os, signal, socket, struct, subprocess, sys
name, address, mtu, way = sys.argv[1:]
socket.sethostname(name)
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454CA, struct.pack("16sH22x", b"t0", 0x1001))  # TUNSETIFF, IFF_TUN | IFF_NO_PI
for command in ("link set lo up", f"addr add {address}/24 dev t0", f"link set t0 up mtu {mtu}"):
    subprocess.run(["ip", *command.split()], check=True)
with socket.socket(socket.AF_UNIX) as parent:
    parent.connect(way)
    socket.send_fds(parent, [b"x"], [tun])
os.close(tun)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pause()
"""


def why_not() -> str | None:
    """Why there can be no such hosts here; None if there can."""
    if not os.access("/dev/net/tun", os.W_OK):
        return "/dev/net/tun cannot be opened"
    done = subprocess.run([*_UNSHARE, "ip", "link"], capture_output=True, text=True, check=False)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else None


@dataclass(slots=True)
class NetworkPath:
    """From one host to another."""

    is_blocked: bool = False
    delay_s: float = 0.0
    loss: float = 0.0
    #: Of packets with data of TCP: a byte of these is another one, and TCP's checksum fits it.
    corruption: float = 0.0
    #: Of shorter ones none, as those of a handshake are.
    least_corrupted_nbytes: int = 0
    #: Each packet of TCP is answered by a reset of its connection, as by a firewall that rejects it.
    is_reset: bool = False
    #: Bytes per second; 0: no limit.
    rate: float = 0.0
    queued_nbytes: int = 0
    free_at: float = 0.0


@dataclass(slots=True)
class NetworkHost:
    """Processes that run here see this host's name and network only."""

    name: str
    address: str
    init: subprocess.Popen[bytes]
    #: Of the process that is the first one inside, as the test sees it.
    pid: int
    tun: int
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, command: Sequence[str], env: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        """Run a command on this host."""
        enter = [
            "nsenter",
            "--user",
            "--preserve-credentials",
            *_NAMESPACES,
            f"--target={self.pid}",
        ]
        process = subprocess.Popen(
            [*enter, *command],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def crash(self) -> None:
        """All its processes end at once, and nobody says goodbye."""
        self.init.kill()
        self.init.wait()


class Network:
    """Use as a context manager; all hosts reach one another, until told otherwise."""

    def __init__(
        self, hosts: int, folder: str, see: Callable[[bytes], None] = lambda packet: None
    ) -> None:
        """`see`: is shown every packet that leaves a host for another."""
        self._folder = folder
        self._see = see
        self._size = hosts
        self.hosts: list[NetworkHost] = []
        self.ways = {(a, b): NetworkPath() for a in range(hosts) for b in range(hosts) if a != b}
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._carry, name="network")

    def __enter__(self) -> Network:
        try:
            for number in range(self._size):
                self.hosts.append(self._make_host(number))
        except BaseException:
            self.close()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all hosts."""
        if self._thread.is_alive():
            os.eventfd_write(self._stop, 1)
            self._thread.join()
        for host in self.hosts:
            host.crash()
            for process in host.processes:
                process.kill()
                process.communicate()
            os.close(host.tun)
        self.hosts.clear()
        os.close(self._stop)

    # ---------------------------------------------------------------------------- misbehaviour

    def between(self, one: Sequence[int], other: Sequence[int]) -> list[NetworkPath]:
        """All ways between two sets of hosts, in both directions."""
        return [self.ways[a, b] for x, y in ((one, other), (other, one)) for a in x for b in y]

    def cut(self, one: Sequence[int], other: Sequence[int]) -> None:
        """Nothing gets through any more, in silence."""
        for way in self.between(one, other):
            way.is_blocked = True

    # ------------------------------------------------------------------------------- inside

    def _make_host(self, number: int) -> NetworkHost:
        name, address = f"node{number}", f"10.77.0.{number + 1}"
        path = os.path.join(self._folder, f"{name}.socket")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            server.settimeout(20)
            init = subprocess.Popen(
                [*_UNSHARE, sys.executable, "-c", _INIT, name, address, str(_MTU), path]
            )
            try:
                with server.accept()[0] as child:
                    _, [tun], _, _ = socket.recv_fds(child, 1, 1)
                [pid] = map(int, _read(f"/proc/{init.pid}/task/{init.pid}/children").split())
            except BaseException:
                init.kill()
                init.wait()
                raise
        os.set_blocking(tun, False)
        return NetworkHost(name, address, init, pid, tun)

    def _carry(self) -> None:
        by_address = {socket.inet_aton(host.address): i for i, host in enumerate(self.hosts)}
        chance = random.Random(1)
        later: list[tuple[float, int, NetworkPath, int, bytes]] = []
        numbers = count()
        poll = select.epoll()
        poll.register(self._stop, select.EPOLLIN)
        for host in self.hosts:
            poll.register(host.tun, select.EPOLLIN)
        source = {host.tun: i for i, host in enumerate(self.hosts)}
        tuns = [host.tun for host in self.hosts]
        while True:
            wait_s = max(later[0][0] - time.monotonic(), 0) if later else -1
            for fd, _ in poll.poll(wait_s):
                if fd == self._stop:
                    poll.close()
                    return
                for _ in range(64):
                    packet = _read_packet(fd)
                    if not packet:
                        break
                    target = by_address.get(packet[16:20]) if packet[0] >> 4 == 4 else None
                    if target is None or target == source[fd]:
                        continue
                    self._see(packet)
                    way = self.ways[source[fd], target]
                    if way.is_blocked or (way.loss and chance.random() < way.loss):
                        continue
                    if (
                        way.corruption
                        and len(packet) >= way.least_corrupted_nbytes
                        and chance.random() < way.corruption
                    ):
                        packet = change_data(packet, chance)
                    if way.is_reset and packet[9] == socket.IPPROTO_TCP:
                        _write_packet(fd, make_reset(packet))
                        continue
                    if not way.delay_s and not way.rate:
                        _write_packet(tuns[target], packet)
                        continue
                    if way.queued_nbytes + len(packet) > _MOST_QUEUED_NBYTES:
                        continue
                    way.queued_nbytes += len(packet)
                    begin = max(time.monotonic(), way.free_at)
                    way.free_at = begin + (len(packet) / way.rate if way.rate else 0)
                    due = way.free_at + way.delay_s
                    heapq.heappush(later, (due, next(numbers), way, tuns[target], packet))
            now = time.monotonic()
            while later and later[0][0] <= now:
                _, _, way, tun, packet = heapq.heappop(later)
                way.queued_nbytes -= len(packet)
                if not way.is_blocked:
                    _write_packet(tun, packet)


def change_data(packet: bytes, chance: random.Random) -> bytes:
    """The packet with another byte among the data of TCP, and a checksum that fits."""
    tcp = (packet[0] & 15) * 4
    data = tcp + (packet[tcp + 12] >> 4) * 4 if packet[9] == socket.IPPROTO_TCP else len(packet)
    if data >= len(packet):
        return packet
    changed = bytearray(packet)
    at = chance.randrange(data, len(packet))
    changed[at] ^= chance.randrange(1, 256)
    word = at - (at - tcp) % 2  # the checksum is one of words of two bytes, in ones' complement
    before, after = (bytes(each[word : word + 2]).ljust(2, b"\0") for each in (packet, changed))
    said = int.from_bytes(packet[tcp + 16 : tcp + 18])
    total = (said ^ 0xFFFF) + (int.from_bytes(before) ^ 0xFFFF) + int.from_bytes(after)
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    changed[tcp + 16 : tcp + 18] = (total ^ 0xFFFF).to_bytes(2)
    return bytes(changed)


def make_reset(packet: bytes) -> bytes:
    """The answer to a packet of TCP that resets its connection: what its sender has to hear to believe it."""
    tcp = (packet[0] & 15) * 4
    header, segment = bytearray(packet[:20]), bytearray(20)
    header[0] = 0x45  # five words: no options
    header[2:4] = (40).to_bytes(2)
    header[10:12] = b"\0\0"
    header[12:20] = packet[16:20] + packet[12:16]
    header[10:12] = _checksum(header).to_bytes(2)
    segment[:4] = packet[tcp + 2 : tcp + 4] + packet[tcp : tcp + 2]
    segment[4:8] = packet[tcp + 8 : tcp + 12]  # goes on where the sender has heard all
    segment[12:14] = (5 << 12 | 0x04).to_bytes(2)  # five words; RST
    addresses = header[12:20] + bytes([0, socket.IPPROTO_TCP]) + len(segment).to_bytes(2)
    segment[16:18] = _checksum(addresses + segment).to_bytes(2)
    return bytes(header + segment)


def _checksum(words: bytes | bytearray) -> int:
    """Of IP and TCP: the sum of words of two bytes in ones' complement, inverted."""
    total = sum(int.from_bytes(words[at : at + 2]) for at in range(0, len(words), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


def _read_packet(tun: int) -> bytes:
    try:
        return os.read(tun, 1 << 16)
    except OSError:  # nothing there, or the host is gone
        return b""


def _write_packet(tun: int, packet: bytes) -> None:
    with suppress(OSError):  # the host is gone, or its queue is full
        os.write(tun, packet)
