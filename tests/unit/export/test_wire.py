from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, struct_pb2, wrappers_pb2
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st

from distdbg.export import wire


@pytest.mark.parametrize(
    ("field", "data"),
    [(wire.uint(1, 300), "08ac02"), (wire.text(2, "dp"), "12026470"), (wire.uint(1, 0), "0800")],
)
def test_a_field_is_as_it_is_drawn(field: bytes, data: str) -> None:
    assert field == bytes.fromhex(data)


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_integer_is_read_back(value: int) -> None:
    assert wrappers_pb2.UInt64Value.FromString(wire.uint(1, value)).value == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_negative_integer_is_read_back(value: int) -> None:
    assert wrappers_pb2.Int64Value.FromString(wire.uint(1, value)).value == value


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**29 - 1))
def test_a_zigzag_integer_is_as_the_library_writes_it(value: int, number: int) -> None:
    parts: list[bytes] = []
    encoder.SInt64Encoder(number, False, False)(parts.append, value, False)
    assert wire.sint(number, value) == b"".join(parts)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(1, 2**29 - 1))
def test_packed_integers_are_as_the_library_writes_them(values: list[int], number: int) -> None:
    parts: list[bytes] = []
    encoder.SInt64Encoder(number, True, True)(parts.append, values, False)
    assert wire.packed_sints(number, values) == b"".join(parts)


@given(st.floats(allow_nan=False), st.text(st.characters(exclude_categories=())))
def test_doubles_and_text_are_read_back(value: float, words: str) -> None:
    assert wrappers_pb2.DoubleValue.FromString(wire.double(1, value)).value == value
    found = wrappers_pb2.StringValue.FromString(wire.text(1, words)).value
    assert found == words.encode("utf-8", "replace").decode()


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**29 - 1))
def test_fixed64_is_as_the_library_writes_it(value: int, number: int) -> None:
    parts: list[bytes] = []
    encoder.Fixed64Encoder(number, False, False)(parts.append, value, False)
    assert wire.fixed64(number, value) == b"".join(parts)


def test_messages_are_within_messages() -> None:
    inner = wire.text(1, "f") + wire.uint(3, 7)
    message = descriptor_pb2.DescriptorProto.FromString(wire.text(1, "M") + wire.chunk(2, inner))
    assert (message.name, message.field[0].name, message.field[0].number) == ("M", "f", 7)


def test_a_message_in_a_stream_has_its_length_before_it() -> None:
    message = struct_pb2.Value(string_value="x" * 200).SerializeToString()
    assert wire.delimited(message) == encoder._VarintBytes(len(message)) + message
