from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.debugger import protocol
from distdbg.debugger.protocol import MAX_LINE_NBYTES, MAX_TEXT, MalformedLine


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_words_come_back_from_their_line(words: dict[str, object]) -> None:
    line = protocol.encode(words)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert protocol.decode(line) == words


@given(st.binary())
def test_any_bytes_are_words_or_a_bad_line(line: bytes) -> None:
    with suppress(MalformedLine):
        assert isinstance(protocol.decode(line), dict)


def test_a_line_nested_too_deeply_is_a_bad_one() -> None:
    with pytest.raises(MalformedLine):
        protocol.decode(b"[" * 200_000)


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line and line.strip())))
def test_lines_are_cut_wherever_the_bytes_were_parted(lines: list[bytes]) -> None:
    inbox = bytearray()
    found = []
    for byte in b"".join(line + b"\n" for line in lines):
        inbox.append(byte)
        found += protocol.cut_lines(inbox)
    assert found == lines
    assert not inbox


def test_a_line_that_has_no_end_is_refused() -> None:
    with pytest.raises(MalformedLine, match="more than"):
        protocol.cut_lines(bytearray(b"x" * (MAX_LINE_NBYTES + 1)))


def test_a_long_text_goes_in_lines_that_any_client_takes() -> None:
    text = "\u2502" * (3 * MAX_TEXT + 5)
    lines = [protocol.encode(words) for words in protocol.text_lines(text)]
    assert len(lines) == 4
    assert all(len(line) <= MAX_LINE_NBYTES for line in lines)
    assert "".join(json.loads(line)["write"] for line in lines) == text


@pytest.mark.parametrize("value", [None, 7, "!", "é", ["QQ=="]])
def test_what_is_no_base64_is_refused(value: object) -> None:
    with pytest.raises(MalformedLine):
        protocol.from_base64(value)


@pytest.mark.parametrize(
    "value", [[24], [0, 80], [24, 80, 1], ["24", "80"], [24, 10**6], [True, 9]]
)
def test_what_is_no_size_is_refused(value: object) -> None:
    with pytest.raises(MalformedLine):
        protocol.read_size(value)


@pytest.mark.parametrize("value", [None, ["p", "p x", 2], ["p", "p x", "2", 3], [1, 2, 3, 4]])
def test_what_is_no_question_of_readline_is_refused(value: object) -> None:
    with pytest.raises(MalformedLine):
        protocol.read_completion(value)
