"""The log of a FileStore: any cut yields a beginning of the records, damage is never taken for data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distdbg.runtime.store.file_log import (
    DamagedLog,
    LogEntryKind,
    StoreChange,
    encode_record,
    read_records,
)

RECORDS = st.lists(
    st.builds(
        StoreChange, st.sampled_from(LogEntryKind), st.text(max_size=20), st.binary(max_size=40)
    ),
    max_size=6,
)


@given(RECORDS, st.data())
def test_any_cut_yields_whole_records_and_where_they_end(
    records: list[StoreChange], data: st.DataObject
) -> None:
    parts = [encode_record(record) for record in records]
    log = b"".join(parts)
    cut = data.draw(st.integers(0, len(log)))
    read, consumed = read_records(log[:cut])
    assert read == records[: len(read)]
    assert consumed == sum(map(len, parts[: len(read)])) <= cut
    assert len(read) == len(records) or cut < consumed + len(parts[len(read)])


@given(RECORDS.filter(bool), st.data())
def test_a_changed_byte_never_goes_unnoticed(
    records: list[StoreChange], data: st.DataObject
) -> None:
    log = bytearray(b"".join(map(encode_record, records)))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= data.draw(st.integers(1, 255))
    try:
        read, _ = read_records(bytes(log))
    except DamagedLog:
        return
    # A longer length looks like a record that is not whole yet: it and what follows are not read.
    assert len(read) < len(records)
    assert read == records[: len(read)]


def test_a_known_record_has_known_bytes() -> None:
    known = bytes.fromhex("b16bf7e2 03000000 05000000 01000000") + b"keyvalue"
    assert encode_record(StoreChange(LogEntryKind.SET, "key", b"value")) == known
