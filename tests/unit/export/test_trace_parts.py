"""What timelines are made from: lanes, columns of bytes, who came last, arrows, counters."""

from __future__ import annotations

from array import array
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.diagnose.ops import NEVER, NONE, Ops
from distdbg.diagnose.session import GroupInfo, RankLog, Session
from distdbg.export.trace.arrivals import SEND, Arrivals
from distdbg.export.trace.counts import count
from distdbg.export.trace.lanes import OPEN, find_lanes, find_nested_lanes
from distdbg.export.trace.protobuf_columns import Blobs, Fixed, join, width_of
from distdbg.export.trace.slices import SOMEBODY, RankSlices, mix, to_slices, wait_words
from distdbg.export.wire import varint
from distdbg.record.format import Flag
from distdbg.record.forms import Form

_TIMES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(0, 2)), max_size=40)


@given(_TIMES)
def test_slices_of_one_lane_never_touch(drawn: list[tuple[int, int, int]]) -> None:
    begins = np.array([begin for begin, _, _ in drawn], np.int64)
    ends = begins + np.array([length for _, length, _ in drawn], np.int64)
    tracks = np.array([track for _, _, track in drawn], np.int32)
    lanes = find_lanes(begins, ends, tracks)
    places: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for begin, end, track, lane in zip(begins, ends, tracks, lanes, strict=True):
        places.setdefault((track, lane), []).append((begin, end))
    for slices in places.values():
        slices.sort()
        assert all(a[1] < b[0] for a, b in pairwise(slices))


def test_what_does_not_overlap_has_one_lane() -> None:
    begins = np.array([30, 0, 10], np.int64)
    assert find_lanes(begins, begins + 5, np.zeros(3, np.int32)).tolist() == [0, 0, 0]


@given(_TIMES)
def test_spans_of_one_lane_are_nested_or_apart(drawn: list[tuple[int, int, int]]) -> None:
    spans = sorted(((b, b + n) for b, n, _ in drawn), key=lambda span: (span[0], -span[1]))
    lanes = find_nested_lanes(spans)
    for at, (begin, end) in enumerate(spans):
        for other in range(at + 1, len(spans)):
            if lanes[at] == lanes[other]:
                low, high = spans[other]
                assert low > end or (begin <= low and high <= end)


@given(
    st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=9)), min_size=1, max_size=9)
)
def test_rows_are_head_blob_and_tail_of_each(drawn: list[tuple[int, bytes]]) -> None:
    values = np.array([value for value, _ in drawn], np.int64)
    head, tail = Fixed(len(drawn)), Fixed(len(drawn))
    head.const(b"<")
    head.varint(values, width_of(values))
    tail.fixed64(values.astype(np.uint64))
    data = join(head, Blobs.of([blob for _, blob in drawn]), np.arange(len(drawn)), tail)
    width = width_of(values)
    for value, blob in drawn:
        assert data[:1] == b"<"
        number = sum((byte & 127) << 7 * at for at, byte in enumerate(data[1 : 1 + width]))
        assert number == value
        data = data[1 + width :]
        assert data[: len(blob)] == blob
        assert int.from_bytes(data[len(blob) : len(blob) + 8], "little") == value
        data = data[len(blob) + 8 :]
    assert not data


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, 2**35, 2**63 - 1])
def test_a_value_has_room_for_its_varint(value: int) -> None:
    assert width_of(np.array([value], np.int64)) == len(varint(value))


# ----------------------------------------------------------------------------- who came, and who did not


def make_log(rank: int, ops: Ops, *, issued: int = 0, **more: object) -> RankLog:
    from distdbg.diagnose.session import GroupProgress

    log = RankLog(rank=rank, ops=ops, clock_error_ns=0)
    log.progress = {0: GroupProgress(issued_seq=issued, ended_seq=issued)}
    for name, value in more.items():
        setattr(log, name, value)
    return log


def collectives(*times: int, in_flight: bool = False) -> Ops:
    ops = Ops()
    for seq, at_ns in enumerate(times, 1):
        is_last = in_flight and seq == len(times)
        ops.append(
            number=seq,
            issued_ns=at_ns,
            seq=seq,
            group=0,
            kind=1,
            started_ns=NEVER if is_last else at_ns + 5_000,
            ended_ns=NEVER if is_last else at_ns + 6_000,
            **({} if is_last else {"status": 0}),
        )
    return ops


def session_of(size: int) -> Session:
    session = Session(source="made", run="made")
    session.groups = [GroupInfo(name="0:dp", label="dp", ranks=tuple(range(size)))]
    session.forms = [Form(), Form(nbytes=100)]
    return session


def test_the_rank_that_came_last_is_waited_for() -> None:
    logs = [make_log(0, collectives(10_000)), make_log(1, collectives(14_000))]
    arrivals = Arrivals()
    for log in logs:
        arrivals.add(log)
    seqs = np.array([1, 2], np.int64)
    assert arrivals.last_of(0, seqs).tolist() == [1, NONE]
    assert arrivals.first_of(0, seqs).tolist() == [0, NONE]
    assert to_slices(session_of(2), logs[0], arrivals).waits_for.tolist() == [1]
    assert to_slices(session_of(2), logs[1], arrivals).waits_for.tolist() == [SOMEBODY]


def test_nobody_is_named_where_clocks_were_not_compared() -> None:
    logs = [make_log(0, collectives(10_000)), make_log(1, collectives(14_000), clock_error_ns=None)]
    arrivals = Arrivals()
    for log in logs:
        arrivals.add(log)
    assert to_slices(session_of(2), logs[0], arrivals).waits_for.tolist() == [SOMEBODY]


def test_an_op_in_flight_names_all_that_have_not_come() -> None:
    arrivals = Arrivals()
    logs = [make_log(0, collectives(10, 20, in_flight=True), issued=2)]
    logs += [make_log(rank, collectives(10), issued=1) for rank in (1, 2)]
    for log in logs:
        arrivals.add(log)
    slices = to_slices(session_of(3), logs[0], arrivals)
    assert slices.ends.tolist()[1] == OPEN
    assert wait_words(slices, 1) == "waits for ranks 1-2"


def test_ops_of_one_collective_have_one_flow_on_all_ranks() -> None:
    logs = [make_log(rank, collectives(10, 20, 30)) for rank in range(3)]
    arrivals = Arrivals()
    flows = [to_slices(session_of(3), log, arrivals).flows.tolist() for log in logs]
    assert flows[0] == flows[1] == flows[2]
    assert len(set(flows[0])) == 3
    assert 0 not in flows[0]


def test_a_group_of_one_has_no_flows() -> None:
    flows = to_slices(session_of(1), make_log(0, collectives(10)), Arrivals()).flows
    assert flows.tolist() == [0]


def test_numbers_side_by_side_are_mixed_apart() -> None:
    mixed = mix(np.arange(10_000, dtype=np.uint64))
    assert len(set((mixed >> np.uint64(48)).tolist())) > 5_000


def messages(*rows: tuple[int, int, int, int]) -> Ops:
    """Kind, peer, seq, tag."""
    ops = Ops()
    for number, (kind, peer, seq, tag) in enumerate(rows, 1):
        ops.append(
            number=number, issued_ns=number * 10, seq=seq, group=0, kind=kind, peer=peer, tag=tag,
            ended_ns=number * 10 + 5, status=0, flags=Flag.MESSAGE, source=NONE,
        )  # fmt: skip
    return ops


def both_ends(sender: Ops, receiver: Ops, **lost: int) -> list[dict[int, tuple[int, ...]]]:
    arrivals = Arrivals()
    logs = [make_log(0, sender, lost=lost), make_log(1, receiver)]
    for log in logs:
        arrivals.add(log)
    return [dict(arrivals.number_messages(log.rank, log.ops)) for log in logs]


def test_messages_of_one_tag_meet_by_their_number_also_in_rings_that_came_round() -> None:
    sent, received = both_ends(
        messages((SEND, 1, 41, 7), (SEND, 1, 42, 7)), messages((SEND + 1, 0, 42, 7)), ops=40
    )
    assert sent[1] == received[0] == (0, 0, 1, 7, 42)


def test_messages_of_several_tags_meet_in_the_order_of_each_tag() -> None:
    sent, received = both_ends(
        messages((SEND, 1, 1, 7), (SEND, 1, 2, 8)),
        messages((SEND + 1, 0, 1, 8), (SEND + 1, 0, 2, 7)),
    )
    assert sent[0] == received[1]
    assert sent[1] == received[0]


def test_messages_of_several_tags_are_not_joined_where_some_were_overwritten() -> None:
    sent, received = both_ends(
        messages((SEND, 1, 5, 7), (SEND, 1, 6, 8)), messages((SEND + 1, 0, 6, 8)), ops=4
    )
    assert sent == {}
    assert received == {}


def test_a_recv_from_any_meets_the_send_that_it_took() -> None:
    receiver = messages((SEND + 1, NONE, 1, 7))
    receiver.source = array("i", [0])
    sent, received = both_ends(messages((SEND, 1, 1, 7)), receiver)
    assert sent[0] == received[0]


# --------------------------------------------------------------------------------------------- counters


def test_counters_tell_the_mean_of_what_is_in_flight() -> None:
    ops = collectives(*range(0, 1_000_000, 12_000))
    ops.form = array("i", [1] * len(ops))
    series = {one.name: one for one in count(session_of(2), _slices(ops), 0)}
    in_flight = series["ops in flight"].values
    assert in_flight.mean() == pytest.approx(0.5, abs=0.02)
    assert series["ops that wait for others"].values.mean() == pytest.approx(5 / 12, abs=0.02)
    volume = series["bytes per second"]
    widths = np.diff([*volume.times.tolist(), int(_slices(ops).ends.max()) + 1])
    assert (volume.values * widths / 1e9).sum() == pytest.approx(100 * len(ops), rel=0.01)


def test_what_does_not_end_is_in_flight_until_the_end() -> None:
    slices = _slices(collectives(0, 10_000, in_flight=True))
    found = count(session_of(2), slices, 1_000_000)[0]
    assert found.values[-1] == 1.0
    assert found.times[-1] > 900_000


def _slices(ops: Ops) -> RankSlices:
    return to_slices(session_of(2), make_log(0, ops), Arrivals())
