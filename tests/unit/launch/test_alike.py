"""What ranks print alike is one block with all of them in front."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdbg.launch.outputs.alike import FOLD_S, EqualLines, prefix_of

LOST = b"PeerLost at train.py:80: rank 2 died (signal 9, SIGKILL)\n"
WARNING = b"/job/a.py:4: RuntimeWarning: divide by zero\n  return x / 0\n"


def of(rank: int, text: bytes) -> bytes:
    return b"".join(prefix_of(rank) + line for line in text.splitlines(keepends=True))


def test_the_lines_of_victims_are_one_line_when_they_have_waited() -> None:
    alike = EqualLines()
    for rank in (3, 0, 1):
        assert alike.put(rank, of(rank, LOST), 1.0) == b""
    assert alike.idle(1.0 + FOLD_S / 2) == b""
    assert alike.idle(1.0 + FOLD_S) == b"[ranks 0-1,3] " + LOST
    assert alike.is_empty


def test_equal_warnings_are_one_and_others_are_not() -> None:
    alike = EqualLines()
    other = WARNING.replace(b":4:", b":5:")
    for rank, text in ((0, WARNING), (1, other), (2, WARNING)):
        assert alike.put(rank, of(rank, text), 0.0) == b""
    folded = b"".join(b"[ranks 0,2] " + line for line in WARNING.splitlines(keepends=True))
    assert alike.finish() == folded + of(1, other)


LATENT = b"""/job/a.py:9: LatentWarning: rank %d: the Work of all_reduce was dropped
  rank %d started it at a.py:9 (step)
  hint: keep the Work and call wait() on it
  dist.all_reduce(x, async_op=True)
"""


def test_latent_errors_of_one_line_are_one_block_without_the_ranks_of_each() -> None:
    alike = EqualLines()
    for rank in (2, 0, 1):
        assert alike.put(rank, of(rank, LATENT % (rank, rank)), 0.0) == b""
    bare = (LATENT % (0, 0)).replace(b"rank 0: ", b"").replace(b"rank 0 ", b"")
    assert alike.finish() == b"".join(b"[ranks 0-2] " + line for line in bare.splitlines(True))


TRACEBACK = b"""Traceback (most recent call last):
  File "/job/a.py", line 4, in load
    return read(path)
FileNotFoundError: /data/a.npy

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/a.py", line 9, in <module>
    main()
RuntimeError: no data
hint: mount it
"""


def numbered(prefix: bytes, text: bytes) -> bytes:
    """As a rank writes it: an empty line ends with no blank."""
    lines = text.splitlines(keepends=True)
    return b"".join((prefix if line.strip() else prefix.rstrip()) + line for line in lines)


def test_equal_tracebacks_are_one_with_all_ranks_in_front_of_each_line() -> None:
    alike = EqualLines()
    other = TRACEBACK.replace(b"line 4", b"line 5")
    for rank, text in ((2, TRACEBACK), (0, other), (1, TRACEBACK)):
        assert alike.put(rank, numbered(prefix_of(rank), text), 0.0) == b""
    assert alike.put(0, b"and then\n", 0.1) == numbered(b"[rank 0] ", other) + b"and then\n"
    assert alike.idle(FOLD_S) == numbered(b"[ranks 1-2] ", TRACEBACK)
    assert alike.is_empty


def test_a_rank_keeps_its_order() -> None:
    alike = EqualLines()
    assert alike.put(0, of(0, WARNING), 0.0) == b""
    assert alike.put(1, b"another rank\n", 0.0) == b"another rank\n"
    assert alike.put(0, b"and then\n", 0.0) == of(0, WARNING) + b"and then\n"


def test_what_a_rank_prints_twice_is_there_twice() -> None:
    alike = EqualLines()
    alike.put(0, of(0, LOST), 0.0)
    assert alike.put(0, of(0, LOST), 0.0) == of(0, LOST)
    assert alike.finish() == of(0, LOST)


def test_what_is_kept_has_a_bound() -> None:
    alike = EqualLines()
    out = b""
    for line in range(1000):
        out += alike.put(0, of(0, b"/job/a.py:%d: UserWarning: x\n" % line), 0.0)
    assert out.count(b"\n") > 900
    huge = of(0, b"/job/a.py:1: UserWarning: " + b"x" * 100_000 + b"\n")
    assert alike.put(1, huge, 0.0) == huge


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([LOST, WARNING, TRACEBACK, b"plain\n", b"torn", b"\xff\r"]),
        )
    )
)
def test_each_rank_has_all_that_it_printed_in_its_order(parts: list[tuple[int, bytes]]) -> None:
    """Judged by the texts behind the prefixes: plain lines go out as they are."""
    alike, out = EqualLines(), b""
    for at, (rank, text) in enumerate(parts):
        is_plain = text not in (LOST, WARNING, TRACEBACK)
        out += alike.put(rank, text if is_plain else numbered(prefix_of(rank), text), at / 7)
        out += alike.idle(at / 7)
    out += alike.finish()
    for text in (b"plain\n", b"torn", b"\xff\r"):
        assert out.count(text) == sum(part == text for _, part in parts)
    ranks = {rank for rank, text in parts if text == LOST}
    assert (LOST in out) == bool(ranks)
    assert alike.is_empty
