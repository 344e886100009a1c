"""What a rank prints while its file cannot be written any more, as on a full disk."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distdbg.launch.outputs.lines import LineCutter
from distdbg.launch.outputs.losses import OutputLoss, say_losses
from distdbg.launch.outputs.tail import LogTail, TeePipe


class Shown:
    """A console that takes everything."""

    def __init__(self) -> None:
        self.text = b""

    def put(self, lines: bytes) -> None:
        self.text += lines

    def flush(self, wait_ms: int) -> bool:
        return True

    def close(self) -> None: ...


class Rank:
    """A pipe on its way into a file and two consoles, of which the second takes only some lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost: list[tuple[Path, str | None, int]] = []
        self.consoles = Shown(), Shown()
        reading, self.fd = os.pipe()
        os.set_blocking(reading, False)
        self.tails: list[LogTail] = []
        self.tee = TeePipe(
            reading, path, self.tails, lambda p, e, n: self.lost.append((p, e.strerror, n))
        )
        for console, needles in zip(self.consoles, ((), (b"5",)), strict=True):
            self.tails.append(
                LogTail(os.open(path, os.O_RDONLY), LineCutter(b">", needles), console)
            )

    def prints(self, text: bytes) -> None:
        os.write(self.fd, text)
        assert self.tee.step()

    def show(self) -> None:
        for tail in self.tails:
            while tail.step():
                pass

    def close(self) -> None:
        os.close(self.fd)
        self.tee.close()
        for tail in self.tails:
            tail.close()


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_file_does_not_take_is_shown_in_its_place(tmp_path: Path) -> None:
    rank = Rank(tmp_path / "stdout.log")
    lines = [b"line %d\n" % number for number in range(10)]
    rank.prints(b"".join(lines[:2]))
    with files_of_at_most(17):
        rank.prints(b"".join(lines[2:5]))  # 14 bytes and a part of the third line
        rank.prints(b"".join(lines[5:8]))
    rank.prints(b"".join(lines[8:]))  # there is room again
    rank.show()
    assert rank.path.read_bytes() == b"line 0\nline 1\nlinline 8\nline 9\n"
    assert rank.consoles[0].text == b"".join(b">" + line for line in lines)
    assert rank.consoles[1].text == b">line 5\n"
    assert rank.lost == [(rank.path, "File too large", 18), (rank.path, "File too large", 21)]
    rank.close()


def test_a_rank_waits_once_too_much_is_kept_beyond_the_file(tmp_path: Path) -> None:
    rank = Rank(tmp_path / "stdout.log")
    with files_of_at_most(1):
        for _ in range(20):
            if rank.tee.is_full:
                break
            rank.prints(b"x" * 65535 + b"\n")
    os.write(rank.fd, b"more\n")
    assert not rank.tee.step()
    rank.show()
    assert rank.tee.step()
    rank.show()
    assert rank.consoles[0].text.endswith(b">more\n")
    rank.close()


def test_a_rank_that_closes_its_stream_is_over(tmp_path: Path) -> None:
    rank = Rank(tmp_path / "stdout.log")
    writing = rank.fd
    rank.fd = os.dup(rank.tee.fileno())  # for close()
    os.close(writing)
    assert not rank.tee.step()
    assert rank.tee.is_over
    rank.close()


def test_losses_are_one_line() -> None:
    one = OutputLoss(
        path=Path("/logs/0/stdout.log"), why="No space left on device", since_wall_ns=10**18
    )
    other = OutputLoss(
        path=Path("/logs/1/stderr.log"), why="x", since_wall_ns=2 * 10**18, nbytes=2048
    )
    assert say_losses([]) == ""
    alone, both = say_losses([one]), say_losses([other, one])
    assert alone.startswith("not written since ")
    assert alone.endswith(": /logs/0/stdout.log (No space left on device)")
    assert both.endswith(
        ": 2 files in /logs, stdout.log first (No space left on device); 2.0 KiB of output are missing "
        "in them"
    )
