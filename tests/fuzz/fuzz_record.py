"""Feeds the reader of records with mutations of two small records: events or RecordError, nothing else.

    python tests/fuzz/fuzz_record.py [--seconds 60] [--seed 1]

With atheris, mutations are guided by coverage; without it (it needs a compiler or a wheel for this
Python) they are random, and the first line says so. What fails is written beside the corpus, and a run
begins with all that lies there. The first byte of an input says how it is read: bit 0 with salvage,
bit 1 with all checks made right again, so that hostile values come through.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from distdbg.errors import RecordError
from distdbg.record.format import FORM, GROUP, HEADER_NBYTES, OP, SITE, Section, checksum
from distdbg.record.reader import RecordFile
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import build_short, build_wrapped

#: No input of this size may take longer.
MOST_SECONDS = 5.0
FAILURES = Path(tempfile.gettempdir()) / "distdbg-fuzz"


def read_all(data: bytes) -> None:
    """Read one input; raises what must not be raised."""
    how, data = data[0] if data else 0, data[1:]
    if how & 2:
        data = repair(data)
    begin = time.monotonic()
    try:
        with RecordFile(data, salvage=bool(how & 1)) as record:
            events = record.read().events
            record.survey()
            record.counters()
            record.recent(0, 50)
            notes = [note.number for note in record.notes(0, 50)]
            assert notes == sorted(set(notes))
            numbers = [event.number for event in events]
            assert numbers == sorted(set(numbers))
            for number in numbers[:4]:
                record.event(number)
    except RecordError:
        pass
    assert time.monotonic() - begin < MOST_SECONDS, "took too long"


def repair(data: bytes, builder: RecordBuilder = build_short()) -> bytes:  # noqa: B008 - constant
    """Make the checks of a record laid out as the examples right."""
    fixed = bytearray(data)

    def put(place: int, end: int, covered: bytes | None = None) -> None:
        if place + end + 8 <= len(fixed):
            words = bytes(fixed[place : place + end]) if covered is None else covered
            fixed[place + end : place + end + 8] = checksum(words).to_bytes(8, "little")

    put(0, HEADER_NBYTES - 8)
    for section, fields in ((Section.RING, OP), (Section.GROUPS, GROUP), (Section.SITES, SITE)):
        for index in range(8 if section is not Section.GROUPS else 4):
            put(builder.offset_of(section, index), fields["check"].offset)
    for index in range(12):
        place = builder.offset_of(Section.FORMS, index)
        nbytes = int.from_bytes(fixed[place + 8 : place + 16], "little") % 488
        text = place + FORM["text"].offset
        padded = bytes(fixed[text : text + (nbytes + 7) // 8 * 8])
        put(place, FORM["check"].offset, bytes(fixed[place : place + 16]) + padded)
    return bytes(fixed)


def corpus() -> list[bytes]:
    seeds = [
        bytes([how]) + build().to_bytes()
        for build in (build_short, build_wrapped)
        for how in range(4)
    ]
    return seeds + [path.read_bytes() for path in sorted(FAILURES.glob("*"))]


def mutate(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    changed[0] = chance.randrange(4)
    for _ in range(chance.choice((1, 1, 2, 4, 16, 64))):
        place = chance.randrange(1, len(changed))
        action = chance.randrange(5)
        if action == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif action == 1:
            changed[place] = chance.choice((0, 1, 127, 128, 255))
        elif action == 2:
            start = 1 + (place - 1) // 8 * 8
            word = chance.choice((0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, chance.getrandbits(64)))
            changed[start : start + 8] = word.to_bytes(8, "little")
        elif action == 3:
            source = chance.randrange(1, len(changed))
            nbytes = chance.choice((8, 32, 128, 512))
            piece = changed[source : source + nbytes]
            changed[place : place + len(piece)] = piece
        elif chance.random() < 0.05:
            del changed[place + 1 :]
    return bytes(changed)


def fuzz_blindly(seconds: float, seed: int) -> None:
    chance = random.Random(seed)
    seeds = corpus()
    deadline = time.monotonic() + seconds
    count = 0
    for data in seeds:
        read_all(data)
    while time.monotonic() < deadline:
        data = mutate(chance.choice(seeds), chance)
        try:
            read_all(data)
        except BaseException:
            FAILURES.mkdir(exist_ok=True)
            path = FAILURES / f"{count:08}-{seed}"
            path.write_bytes(data)
            print(f"wrote {path}", file=sys.stderr)
            raise
        count += 1
    print(f"{count:,} mutations, nothing but events and RecordError")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        import atheris
    except ImportError:
        print("atheris is not there: mutations are random, not guided by coverage", flush=True)
        fuzz_blindly(args.seconds, args.seed)
        return
    with tempfile.TemporaryDirectory() as folder:
        for index, data in enumerate(corpus()):
            (Path(folder) / str(index)).write_bytes(data)
        atheris.instrument_all()
        FAILURES.mkdir(exist_ok=True)
        options = [f"-max_total_time={args.seconds:.0f}", f"-seed={args.seed}", "-max_len=32768"]
        options += [f"-timeout={MOST_SECONDS:.0f}", f"-artifact_prefix={FAILURES}/"]
        atheris.Setup([sys.argv[0], *options, folder], read_all)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
