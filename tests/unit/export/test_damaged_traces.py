"""Records with any damage become a trace, or an error that says so; never anything else."""

from __future__ import annotations

import io
import json
import random
import struct
from contextlib import suppress
from pathlib import Path

import pytest

from distdbg.errors import DistError
from distdbg.export.reading import RunSelection, open_run
from distdbg.export.trace import chrome, perfetto
from distdbg.record.format import OP, OP_NBYTES, checksum
from tests.unit.export.small_job import WALL_NS, make_job

_RING_COUNT = 64
_FIELDS = ("issued_ns", "seq", "value", "group", "form", "site", "thread", "peer", "flags", "kind")


def damage(data: bytearray, chance: random.Random) -> bytes:
    """Bytes that flipped, an end that is missing, or words that somebody wrote with the right check."""
    how = chance.choice(("flip", "cut", "forge", "forge"))
    if how == "cut":
        return bytes(data[: chance.randrange(len(data))])
    if how == "flip":
        for _ in range(chance.choice((1, 5, 50))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        return bytes(data)
    at = len(data) - (_RING_COUNT - chance.randrange(1, 13)) * OP_NBYTES
    field = OP[chance.choice(_FIELDS)]
    bits = 8 * struct.calcsize(f"<{field.code}")
    value = chance.choice((0, 1, 2**bits - 1, 2 ** (bits - 1), chance.getrandbits(bits)))
    data[at + field.offset : at + field.offset + bits // 8] = value.to_bytes(bits // 8, "little")
    check = OP["check"].offset
    data[at + check : at + check + 8] = checksum(bytes(data[at : at + check])).to_bytes(8, "little")
    return bytes(data)


@pytest.mark.parametrize("seed", range(12))
def test_any_damage_becomes_a_trace_or_an_error(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    records = {path: path.read_bytes() for path in make_job(tmp_path).glob("*.ddr")}
    for path, data in records.items():
        path.write_bytes(damage(bytearray(data), chance))
    window = chance.choice((None, WALL_NS + 50_000))
    with suppress(DistError):
        output = io.BytesIO()
        perfetto.write(open_run([tmp_path], RunSelection(since_ns=window)), output)
        assert output.getvalue().startswith(b"\n")
    with suppress(DistError):
        output = io.BytesIO()
        chrome.write(open_run([tmp_path], RunSelection(since_ns=window)), output)
        assert json.loads(output.getvalue())["traceEvents"]


def test_names_that_are_no_letters_are_in_both_traces(tmp_path: Path) -> None:
    make_job(tmp_path, comm="dp \udcff grads")
    output = io.BytesIO()
    chrome.write(open_run([tmp_path]), output)
    text = output.getvalue().decode()
    assert json.loads(text)
    assert "\\ud" not in text.replace("\\\\ud", "")
    output = io.BytesIO()
    perfetto.write(open_run([tmp_path]), output)
    assert b" grads" in output.getvalue()
