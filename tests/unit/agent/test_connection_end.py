"""Who is to send what a process reads, by /proc of real connections."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time

import pytest

from distdbg.agent.blockers import address_text, connections, read_end
from distdbg.follow.processes import read_main_thread

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x 20
   1: short line
"""


def test_connections_are_read_from_the_table_of_the_kernel() -> None:
    [one] = connections(TABLE)
    assert (one.local, one.remote, one.inode) == ("0100007F:1F90", "0100007F:C350", 4711)


@pytest.mark.parametrize("address", ["127.0.0.1:8080", "::ffff:127.0.0.1:80", "::1:80"])
def test_addresses_are_shown_as_people_write_them(address: str) -> None:
    host, _, port = address.rpartition(":")
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    words = struct.unpack(f"={len(packed) // 4}I", packed)  # as this host's kernel has them
    text = f"{''.join(f'{word:08X}' for word in words)}:{int(port):04X}"
    host = host.removeprefix("::ffff:")
    assert address_text(text) == (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


@pytest.mark.parametrize("text", ["", "zz:zz", "0100007F:", "01000:1F90:2"])
def test_what_is_no_address_is_left_out(text: str) -> None:
    assert address_text(text) == ""


@pytest.mark.parametrize("family", ["127.0.0.1", "::1"])
def test_the_other_end_of_what_a_process_reads_is_named(family: str) -> None:
    reading = f"import socket\ns = socket.create_connection(({family!r}, PORT))\nprint(flush=True)\ns.recv(1)"
    with socket.create_server(
        (family, 0), family=socket.AF_INET6 if ":" in family else socket.AF_INET
    ) as server:
        port = server.getsockname()[1]
        code = reading.replace("PORT", str(port))
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as reader:
            accepted = None
            try:
                assert reader.stdout is not None
                reader.stdout.readline()
                end = time.monotonic() + 30
                while True:  # until it is in the call
                    thread = read_main_thread(reader.pid)
                    fd = None if thread is None else thread.reads_fd
                    if fd is not None and read_end(reader.pid, fd, {}):
                        break
                    assert time.monotonic() < end, thread
                    time.sleep(0.01)  # for its next system call
                address = f"[{family}]:{port}" if ":" in family else f"{family}:{port}"
                waits = f"rank 3 ({address}), which has not accepted the connection"
                assert read_end(reader.pid, fd, {os.getpid(): 3}) == waits
                accepted, _ = server.accept()
                assert read_end(reader.pid, fd, {os.getpid(): 3}) == f"rank 3 ({address})"
                assert read_end(reader.pid, fd, {}).startswith(f"pid {os.getpid()} (")
                assert read_end(reader.pid, 1, {os.getpid(): 3}) == ""  # a pipe
                assert read_end(2**22 + 1, 1, {}) == ""
            finally:
                if accepted is not None:
                    accepted.close()
                reader.kill()
