"""What of one rank's stderr goes out when: whole lines and whole tracebacks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdbg.launch.outputs.blocks import BLOCK_S, LINE_S, StreamBlocks

TRACE = b"""Traceback (most recent call last):
  File "a.py", line 1, in <module>
    main()
ValueError: no data
"""
CHAINED = (
    TRACE + b"\nDuring handling of the above exception, another exception occurred:\n\n" + TRACE
)


def prefixed(text: bytes, prefix: bytes = b"[rank 2] ") -> bytes:
    return b"".join((prefix + line).rstrip() + b"\n" for line in text.rstrip(b"\n").split(b"\n"))


def test_lines_go_out_as_they_are_when_they_are_whole() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    assert blocks.feed(b"one\ntw", 0.0) == b"one\n"
    assert blocks.feed(b"o\n", 0.0) == b"two\n"


def test_a_traceback_waits_for_its_end_and_has_the_rank_in_front() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    for line in TRACE.splitlines(keepends=True):
        assert blocks.feed(line, 0.0) == b""
    assert blocks.feed(b"next\n", 0.0) == prefixed(TRACE) + b"next\n"


def test_a_traceback_that_does_not_go_on_is_not_kept_for_long() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    assert blocks.feed(TRACE, 10.0) == b""
    assert blocks.idle(10.0 + BLOCK_S / 2) == b""
    assert blocks.idle(10.0 + BLOCK_S) == prefixed(TRACE)
    assert blocks.is_empty


def test_exceptions_that_come_from_each_other_are_one_block() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    assert blocks.feed(CHAINED, 0.0) == b""
    assert blocks.finish() == prefixed(CHAINED)


def test_lines_below_the_exception_belong_to_it() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    text = TRACE + b"  hint: load some\n"
    assert blocks.feed(text + b"other\n", 0.0) == prefixed(text) + b"other\n"


def test_a_prompt_without_end_is_shown_after_a_while_and_goes_on() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    assert blocks.feed(b"sure? ", 0.0) == b""
    assert blocks.idle(LINE_S / 2) == b""
    assert blocks.idle(LINE_S) == b"sure? "
    assert blocks.feed(b"yes\n", 2.0) == b"yes\n"


def test_of_ctrl_c_one_line_is_left() -> None:
    text = TRACE.replace(b"ValueError: no data", b"KeyboardInterrupt")
    text = text.replace(b"    main()\n", b'    main()\n  File "<frozen importlib>", line 9, in x\n')
    for is_full, out in (
        (False, b"[rank 2] KeyboardInterrupt at a.py:1\n"),
        (True, prefixed(text)),
    ):
        blocks = StreamBlocks(b"[rank 2] ", is_full=is_full)
        assert blocks.feed(text, 0.0) == b""
        assert blocks.finish() == out


def test_an_endless_traceback_goes_out_in_pieces() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    out = blocks.feed(b"Traceback (most recent call last):\n", 0.0)
    for _ in range(100):
        out += blocks.feed(b"  " + b"x" * 9_999 + b"\n", 0.0)
    assert len(out) > 256_000


CRASH = b"""Fatal Python error: Segmentation fault

Current thread 0x00007f3aab1c4b80 (most recent call first):
  File "a.py", line 4 in decode_image

Extension modules: numpy._core._multiarray_umath (total: 1)
"""
WARNING = b"/job/a.py:4: RuntimeWarning: divide by zero\n  return x / 0\n"


def test_a_crash_in_native_code_is_one_block_with_the_rank_in_front() -> None:
    kept: list[bytes] = []
    blocks = StreamBlocks(b"[rank 2] ", on_crash=kept.append)
    for line in CRASH.splitlines(keepends=True):
        assert blocks.feed(line, 0.0) == b""
    assert blocks.feed(b"next\n", 0.0) == prefixed(CRASH) + b"next\n"
    assert blocks.feed(TRACE, 0.0) + blocks.finish() == prefixed(TRACE)
    assert kept == [CRASH]


def test_a_warning_has_its_rank_and_its_line_of_source() -> None:
    blocks = StreamBlocks(b"[rank 2] ")
    assert blocks.feed(WARNING, 0.0) == b""
    assert blocks.feed(b"  indented\n", 0.0) == prefixed(WARNING) + b"  indented\n"
    assert blocks.feed(b"Warning: of nothing\n", 0.0) == b"Warning: of nothing\n"


LATENT = b"""/job/a.py:9: LatentWarning: rank 0: the Work of all_reduce on group 'world' was dropped
  rank 0 started it at a.py:9 (step)
  rank 0 dropped its Work at a.py:10 (step)
  hint: keep the Work and call wait() on it
  dist.all_reduce(x, async_op=True)
"""


def test_a_latent_error_has_its_rank_on_all_of_its_lines() -> None:
    blocks = StreamBlocks(b"[rank 0] ")
    assert blocks.feed(LATENT, 0.0) == b""
    assert blocks.feed(b"  indented\n", 0.0) == prefixed(LATENT, b"[rank 0] ") + b"  indented\n"


@given(
    st.lists(
        st.sampled_from([b"a\n", b"b", b"\r", b"\n", TRACE, WARNING, CRASH, b"  x\n", b"\xff"])
    ),
    st.data(),
)
def test_nothing_is_lost_however_it_is_cut(parts: list[bytes], data: st.DataObject) -> None:
    text = b"".join(parts)
    blocks = StreamBlocks(b"")
    out, at = b"", 0
    while at < len(text):
        size = data.draw(st.integers(1, 9))
        out += blocks.feed(text[at : at + size], at / 3)
        out += blocks.idle(at / 3)
        at += size
    out += blocks.finish()
    assert out in (text, text + b"\n")
