from __future__ import annotations

import os
import secrets
import socket
import subprocess
from pathlib import Path

from tests.support.leftovers import find_leftovers, find_marked, new_mark, take_traces


def test_a_process_is_known_by_its_mark_wherever_it_went() -> None:
    before = take_traces(new_mark())
    other = new_mark()
    script = "(setsid sh -c 'echo up; kill -STOP $$' &)"
    with subprocess.Popen(
        ["sh", "-c", script],
        env={**os.environ, **before.mark.environment},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.wait()
        try:
            [(pid, command)] = find_marked(before.mark).items()
            assert find_leftovers(before, 0.0) == [f"process: {pid} {command}"]
            assert find_marked(other) == {}
        finally:
            for pid in find_marked(before.mark):
                os.kill(pid, 9)
    assert find_leftovers(before) == []


def test_files_segments_and_sockets_are_found(tmp_path: Path) -> None:
    (tmp_path / "there before").touch()
    before = take_traces(new_mark(), [tmp_path])
    name = f"distdbg-{secrets.token_hex(4)}"
    segment = Path("/dev/shm", name)
    of_another = Path("/dev/shm", f"mpich_shm_{name}")  # an MPI's, of whoever tests meanwhile
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(f"\0{name}")
            listener.listen()
            segment.touch()
            of_another.touch()
            (tmp_path / "folder").mkdir()
            (tmp_path / "folder/file").touch()
            assert find_leftovers(before, 0.0) == [
                f"shared memory: {segment}",
                f"socket: @{name}",
                f"file: {tmp_path}/folder",
                f"file: {tmp_path}/folder/file",
            ]
        finally:
            segment.unlink()
            of_another.unlink()
