from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.export.metrics.bounds import clean, group_label
from distdbg.export.metrics.families import OTHER_DTYPE, OTHER_GROUP
from distdbg.export.metrics.samples import HistogramFacts, OpCount
from distdbg.export.metrics.totals import Accumulator, JobHistograms
from distdbg.record.format import BUCKET_COUNT
from tests.unit.export.made_up import buckets, count, host, rank


def ended(totals: Accumulator, kind: str = "all_reduce", group: str = "dp") -> int:
    return sum(count for count, _ in totals.ops[kind, group].by_dtype.values())


def test_the_first_look_counts_what_is_there() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(ended=4)]), rank(1, [count(ended=6)])))
    assert ended(totals) == 10


def test_a_later_look_adds_what_has_come() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(ended=4, nbytes=100)])))
    totals.take(host(rank(0, [count(ended=7, nbytes=150)])))
    assert totals.ops["all_reduce", "dp"].by_dtype == {"float32": [7, 150]}


def test_a_group_that_closes_takes_nothing_with_it() -> None:
    totals = Accumulator()
    rows = [count(instance=1, ended=100), count(instance=2, ended=50)]
    totals.take(host(rank(0, rows)))
    totals.take(host(rank(0, rows[:1])))
    assert ended(totals) == 150
    totals.take(host(rank(0, [rows[0], count(instance=3, ended=5)])))
    assert ended(totals) == 155


def test_a_row_that_is_missed_once_is_not_counted_twice() -> None:
    totals = Accumulator()
    row = count(ended=100)
    for rows in ([row], [], [row], None, [replace(row, ended=101)]):
        totals.take(host(rank(0, rows)))
    assert ended(totals) == 101


def test_a_rank_that_is_started_again_goes_on_from_its_total() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(ended=100)], life=(0, 71), cpu_s=60.0, found={"NaN": 2})))
    totals.take(host(rank(0, [count(ended=120)], life=(1, 72), cpu_s=1.0, found={"NaN": 1})))
    assert ended(totals) == 220
    assert totals.found["NaN"] == 3
    assert (one := totals.rank(0)) is not None
    assert one.cpu_s == 61.0


def test_a_counter_that_fell_has_begun_anew() -> None:
    totals = Accumulator()
    for calls in (100, 3, 5):
        totals.take(host(rank(0, [count(ended=calls)])))
    assert ended(totals) == 105


def test_a_program_that_makes_a_group_each_step_grows_nothing() -> None:
    totals = Accumulator()
    for step in range(2000):
        row = count(group=f"step {step}", instance=step, ended=1)
        totals.take(host(rank(0, [row], seqs={f"step {step}": 1})))
    assert len(totals.ops) == 17
    assert ended(totals, group=OTHER_GROUP) == 2000 - 16
    assert len(totals._ranks[0].places) < 100
    assert sum(one.count for one in totals.histograms().values()) == 2000


def test_data_types_beyond_the_most_are_counted_together() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(dtype=f"type {i}", ended=1) for i in range(20)])))
    found = totals.ops["all_reduce", "dp"].by_dtype
    assert len(found) == 9
    assert found[OTHER_DTYPE][0] == 12


def test_what_a_record_has_no_kind_for_is_counted_together() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(f"kind {i}", ended=1) for i in range(100, 200)])))
    assert list(totals.ops) == [("(other)", "dp")]


def test_each_group_of_a_label_has_its_own_bus_factor() -> None:
    totals = Accumulator()
    rows = [
        count(instance=1, group_size=2, nbytes=100),
        count(instance=2, group_size=4, nbytes=100),
    ]
    totals.take(host(rank(0, rows)))
    assert totals.ops["all_reduce", "dp"].bus_nbytes == 100 * 1.0 + 100 * 1.5


@pytest.mark.parametrize("kind", ["barrier", "gather", "scatter", "send", "new_group"])
def test_what_has_no_bus_bandwidth_has_no_bus_bytes(kind: str) -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(kind)])))
    assert totals.ops[kind, "dp"].bus_nbytes is None


def test_histograms_keep_what_has_ended() -> None:
    totals = Accumulator()
    totals.take(host(rank(0, [count(ended=4)], life=(0, 1))))
    totals.take(host(rank(0, [count(ended=4)], life=(1, 2))))
    found = totals.histograms()["all_reduce", "dp"]
    assert (found.count, found.duration_ns, found.wait_ns) == (8, 16000, 6000)
    assert found.duration_buckets == buckets(b10=8)


def test_a_host_that_does_not_answer_stays_in_the_sum_of_the_job() -> None:
    one, other = Accumulator(), Accumulator()
    one.take(host(rank(0, [count(ended=4)])))
    other.take(host(rank(1, [count(ended=6)])))
    job = JobHistograms()
    job.take("a", one.histograms())
    job.take("b", other.histograms())
    assert job.sum()["all_reduce", "dp"].count == 10
    one.take(host(rank(0, [count(ended=9)])))
    job.take("a", one.histograms())
    assert job.sum()["all_reduce", "dp"].count == 15


def reported(*counts: int) -> dict[tuple[str, str], HistogramFacts]:
    """Of an Accumulator that has seen ranks with so many ops."""
    totals = Accumulator()
    totals.take(host(*(rank(n, [count(ended=some)]) for n, some in enumerate(counts))))
    return totals.histograms()


def whole(job: JobHistograms) -> int:
    return job.sum()["all_reduce", "dp"].count


def test_another_agent_of_a_host_that_reads_the_same_records_adds_nothing() -> None:
    job = JobHistograms()
    job.take("a", reported(10), agent="1")
    job.take("a", reported(12), agent="2")
    assert whole(job) == 12
    job.take("a", reported(15), agent="2")
    assert whole(job) == 15


def test_another_agent_of_a_host_keeps_what_earlier_starts_have_done() -> None:
    job = JobHistograms()
    job.take("a", reported(100), agent="1")
    job.take("a", reported(100, 20), agent="1", attempt=1)  # the first start has done 100
    job.take("a", reported(100, 50), agent="1", attempt=1)
    job.take("a", reported(70), agent="2", attempt=1)  # it reads the second one alone
    assert whole(job) == 170
    # That has by then done more than was ever told.
    job.take("a", reported(400), agent="3", attempt=1)
    assert whole(job) == 500
    job.take("a", reported(3), agent="4", attempt=2)
    assert whole(job) == 503


def test_another_agent_of_a_host_keeps_the_groups_that_it_does_not_see_any_more() -> None:
    job = JobHistograms()
    job.take("a", reported(1000), agent="1")
    job.take("a", reported(2), agent="2")
    assert whole(job) == 1000
    job.take("a", reported(7), agent="2")
    assert whole(job) == 1005


_ROWS = st.lists(
    st.builds(
        lambda instance, kind, group, dtype, ended, duration, wait, nbytes, failed: OpCount(
            group=group, group_size=4, kind=kind, dtype=dtype, ended=ended, failed=failed,
            nbytes=nbytes, duration_ns=duration, wait_ns=wait, instance=instance,
            duration_buckets=(ended, *[0] * (BUCKET_COUNT - 1)),
            wait_buckets=(ended, *[0] * (BUCKET_COUNT - 1)),
        ),
        st.integers(0, 3), st.sampled_from(("all_reduce", "barrier")),
        st.sampled_from(("dp", "tp", "a", "b")), st.sampled_from(("", "f", "g", "h")),
        st.integers(0, 50), st.integers(0, 1000), st.integers(0, 1500), st.integers(0, 99), st.integers(0, 9),
    ),
    max_size=6,
    unique_by=lambda row: (row.instance, row.kind, row.dtype, row.group),
)  # fmt: skip
_LOOKS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 2),
        st.one_of(st.none(), _ROWS),
        st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9)),
    ),
    max_size=25,
)


@given(_LOOKS)
def test_totals_never_fall_and_rise_by_no_more_than_was_seen(looks: list) -> None:
    totals = Accumulator(most_groups=2, most_dtypes=2)
    before: dict[tuple[str, ...], float] = {}
    sums = 0
    for number, life, rows, found in looks:
        totals.take(host(rank(number, rows, life=(0, life), found=found)))
        now: dict[tuple[str, ...], float] = {}
        for key, op in totals.ops.items():
            now[*key, "failed"] = op.failed
            now[*key, "transfer"] = op.transfer_ns
            now[*key, "bus"] = op.bus_nbytes or 0
            for dtype, (calls, nbytes) in op.by_dtype.items():
                now[*key, dtype, "calls"] = calls
                now[*key, dtype, "nbytes"] = nbytes
        for key, times in totals.histograms().items():
            now[*key, "count"] = times.count
            now[*key, "sum"] = times.duration_ns
            now[*key, "waits"] = times.wait_ns
            assert sum(times.duration_buckets) == times.count
        for word, times_found in totals.found.items():
            now["found", word] = times_found
        for one in range(3):
            if (reported := totals.rank(one)) is not None:
                now[str(one), "late"], now[str(one), "transfer"] = reported[:2]
        assert all(now[key] >= value for key, value in before.items())
        calls_before, calls = (
            sum(value for key, value in values.items() if key[-1] == "calls")
            for values in (before, now)
        )
        assert calls - calls_before <= sum(row.ended for row in rows or ())
        sums = sum(times.count for times in totals.histograms().values())
        assert calls == sums
        before = now
    assert len({group for _, group in totals.ops}) <= 3


def waited(totals: Accumulator) -> tuple[int, int]:
    """By cause, of rank 0."""
    found = totals.rank(0)
    assert found is not None
    return found.late_peer_ns, found.transfer_ns


#: Of ops of one rank: when each was called, and how long after that its last rank came, and it ended.
_SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 30)).map(
        lambda op: (op[0], op[0] + op[1], op[0] + op[1] + op[2])
    ),
    max_size=8,
)


def time_in_ops(ops: list[tuple[int, int, int]], from_ns: int, to_ns: int) -> tuple[int, int]:
    """Until their last rank came and since, of those that began in a life and until its end."""
    begun = [op for op in ops if from_ns <= op[0] < to_ns]
    late = sum(min(start, to_ns) - issue for issue, start, _ in begun)
    return late, sum(max(0, min(end, to_ns) - start) for _, start, end in begun)


@given(
    _SPANS, st.lists(st.tuples(st.integers(0, 120), st.sampled_from("xxm?"))), st.integers(0, 90)
)
def test_time_in_ops_counts_once_whether_they_last_or_have_ended(
    ops: list, looks: list, restart_ns: int
) -> None:
    totals = Accumulator()
    reported = (0, 0)
    # What lasts when a life ends is known when it is looked at then.
    for now, how in sorted([*looks, (restart_ns, "x")]):
        is_new = now > restart_ns
        begin, end = (restart_ns, now) if is_new else (0, now)
        ended = [op for op in ops if begin <= op[0] and op[2] <= now and (is_new or op[0] < now)]
        late, transfer = (sum(op[i + 1] - op[i] for op in ended) for i in (0, 1))
        all_late, all_transfer = time_in_ops(ops, begin, end)
        row = count(ended=len(ended), wait_ns=late, duration_ns=late + transfer, nbytes=0)
        lasting = (all_late - late, all_transfer - transfer)
        facts = rank(
            0,
            None if how == "?" else [row],
            # Of a rank that moves it is not known.
            lasting_ns=lasting if how == "x" else (0, 0),
            life=(int(is_new), 1),
        )
        totals.take(host(facts))
        before = reported
        reported = waited(totals)
        assert reported[0] >= before[0]
        assert reported[1] >= before[1]
        old = time_in_ops(ops, 0, restart_ns) if is_new else (0, 0)
        assert reported[0] <= all_late + old[0]
        assert reported[1] <= all_transfer + old[1]
        if how == "x":
            assert reported == (all_late + old[0], all_transfer + old[1])


def test_a_wait_that_goes_on_counts_before_it_ends() -> None:
    totals = Accumulator()
    row = count(wait_ns=1000, duration_ns=1500)
    for lasting, late, transfer in (
        ((0, 0), 1000, 500),
        ((7000, 0), 8000, 500),
        ((9000, 40), 10_000, 540),
    ):
        totals.take(host(rank(0, [row], lasting_ns=lasting)))
        assert waited(totals) == (late, transfer)
    # A rank that moves says nothing of what lasts; a moment later the op has ended.
    totals.take(host(rank(0, [row])))
    assert waited(totals) == (10_000, 540)
    totals.take(host(rank(0, [replace(row, ended=5, wait_ns=10_000, duration_ns=10_600)])))
    assert waited(totals) == (10_000, 600)


def test_what_a_rank_waited_when_it_died_stays_counted() -> None:
    totals = Accumulator()
    row = count(wait_ns=1000, duration_ns=1500)
    totals.take(host(rank(0, [row], lasting_ns=(7000, 30), life=(0, 1))))
    totals.take(host(rank(0, [replace(row, wait_ns=10, duration_ns=20)], life=(1, 2))))
    assert waited(totals) == (8010, 540)


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from((1, 2, 3))), max_size=30))
def test_totals_are_exact_where_every_group_is_seen_before_it_closes(steps: list) -> None:
    totals = Accumulator()
    calls = dict.fromkeys((1, 2, 3), 0)
    every = 0
    is_closed: set[int] = set()
    for more, instance in steps:
        if more == 3:
            is_closed.add(instance)
        elif instance not in is_closed:
            calls[instance] += more
            every += more
        rows = [
            count(instance=one, ended=calls[one], duration_ns=calls[one] * 10, wait_ns=0)
            for one in calls
            if one not in is_closed
        ]
        totals.take(host(rank(0, rows)))
    assert sum(n for op in totals.ops.values() for n, _ in op.by_dtype.values()) == every


@pytest.mark.parametrize(
    ("desc", "name", "size", "label"),
    [
        ("world", "0", 8, "world"),
        ("default_pg", "0", 8, "world"),
        ("default_pg:split", "local-0123456789abcdef-0", 4, "world:split"),
        ("dp", "17", 128, "dp"),
        ("mesh_dp", "17", 128, "mesh_dp"),
        ("17", "17", 8, "(8 ranks)"),
        ("", "17", 1, "(1 rank)"),
        ("local-0123456789abcdef-3", "local-0123456789abcdef-3", 2, "(2 ranks)"),
        ("17", "my group", 8, "17"),
        ("experts", "experts", 4, "experts"),
        ("", "", 4, "(4 ranks)"),
    ],
)
def test_a_group_is_called_what_a_person_calls_it(
    desc: str, name: str, size: int, label: str
) -> None:
    assert group_label(desc, name, size) == label


@given(st.text(st.characters(exclude_categories=()), max_size=300))
def test_a_cleaned_label_is_short_utf8_and_stays_as_it_is(words: str) -> None:
    found = clean(words)
    assert len(found) <= 128
    found.encode()
    assert clean(found) == found


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("a\x1b[31m\x07", r"a\x1b[31m\x07"),
        ("\x9b2J\r\n", r"\x9b2J\r\n"),
        ("\u202egnp\u2066", r"\u202egnp\u2066"),
        ("dp größe 日本", "dp größe 日本"),
    ],
)
def test_what_a_terminal_obeys_is_escaped(words: str, shown: str) -> None:
    assert clean(words) == shown


def test_two_long_names_stay_two() -> None:
    assert clean("a" * 10_000) != clean("a" * 9_999)
