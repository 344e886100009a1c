"""The offset of two clocks: what is said of it is true, however unlike the ways are."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distdbg.hosts.clock import DRIFT, HERE, Exchanges, Offset
from distdbg.hosts.clock_words import write_offset
from distdbg.record.reader import RecordFile
from tests.support.record_examples import build_short

#: A machine may be busy.
patient = settings(
    max_examples=60, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)

MS = 1_000_000
S = 1_000_000_000


def exchange(
    exchanges: Exchanges, at_ns: int, skew_ns: int, there_ns: int, back_ns: int, held_ns: int = 0
) -> int:
    """One exchange with a parent whose clock is `skew_ns` ahead; when it is over."""
    heard_ns = at_ns + there_ns + skew_ns
    done_ns = at_ns + there_ns + held_ns + back_ns
    exchanges.add(at_ns, heard_ns, heard_ns + held_ns, done_ns)
    return done_ns


@patient
@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=40),
)
def test_the_truth_lies_within_the_error(skew_ns: int, ways: list[tuple[int, int]]) -> None:
    exchanges = Exchanges()
    now_ns = 0
    for there_ns, back_ns in ways:
        now_ns = exchange(exchanges, now_ns, skew_ns, there_ns, back_ns)
    offset = exchanges.best(now_ns)
    if offset is None:  # all of them long ago
        return
    assert abs(offset.offset_ns - skew_ns) <= offset.error_ns
    assert offset.error_ns >= 1


def test_of_many_exchanges_the_quickest_counts() -> None:
    chance = random.Random(5)
    exchanges = Exchanges()
    now_ns = 0
    for number in range(8):
        slow_ns = 0 if number == 3 else chance.randrange(MS, 50 * MS)
        now_ns = exchange(exchanges, now_ns, 7 * S, 50_000 + slow_ns, 50_000, held_ns=MS)
    offset = exchanges.best(now_ns)
    assert offset is not None
    assert abs(offset.offset_ns - 7 * S) < 1000
    assert offset.error_ns < 100_000


def test_an_old_exchange_says_less_every_second_and_nothing_in_the_end() -> None:
    exchanges = Exchanges()
    done_ns = exchange(exchanges, 0, 0, 1000, 1000)
    fresh, old = exchanges.best(done_ns), exchanges.best(done_ns + 10 * S)
    assert fresh is not None
    assert old is not None
    assert old.error_ns - fresh.error_ns == pytest.approx(10 * S * DRIFT, rel=0.01)
    assert exchanges.best(done_ns + 100 * S) is None


def test_a_clock_that_drifts_stays_within_the_error() -> None:
    exchanges = Exchanges()
    now_ns = 0
    for second in range(120):
        skew_ns = int(second * S * DRIFT)
        now_ns = exchange(exchanges, second * S, skew_ns, 30_000, 90_000)
        offset = exchanges.best(now_ns)
        assert offset is not None
        assert abs(offset.offset_ns - skew_ns) <= offset.error_ns


def test_an_exchange_that_runs_backwards_is_not_believed() -> None:
    exchanges = Exchanges()
    exchanges.add(100, 0, 0, 50)
    exchanges.add(0, 100, 50, 200)
    exchanges.add(0, 0, 1000, 10)
    assert len(exchanges) == 0


def test_offsets_and_errors_add_up_on_the_way_to_the_root() -> None:
    assert Offset(5, 3).beyond(Offset(-20, 4)).beyond(HERE) == Offset(-15, 8)


def test_the_words_go_into_a_record_and_come_out_of_it(tmp_path: Path) -> None:
    path = tmp_path / "rank00000.ddr"
    path.write_bytes(build_short().to_bytes())
    with RecordFile(path) as record:
        assert (record.state().clock_offset_ns, record.state().clock_error_ns) == (0, 0)
        before = record.state()
        assert write_offset(path, Offset(-123_456_789, 42))
        after = record.state()
        assert (after.clock_offset_ns, after.clock_error_ns) == (-123_456_789, 42)
        assert after.heartbeat_ns == before.heartbeat_ns
        header = record.header
    assert header.to_wall_ns(header.monotonic_ns, clock_offset_ns=7) == header.wall_ns + 7


def test_nothing_is_written_to_what_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "rank00000.ddr"
    assert not write_offset(path, HERE)
    path.write_bytes(b"\0" * 10_000)
    assert not write_offset(path, HERE)
    assert path.read_bytes() == b"\0" * 10_000
    path.write_bytes(build_short().to_bytes()[:5000])
    assert not write_offset(path, HERE)
    link = tmp_path / "rank00001.ddr"
    path.write_bytes(build_short().to_bytes())
    link.symlink_to(path)
    assert not write_offset(link, HERE)
