"""Which ops an expression means, what is said of one that cannot be read, and what ops sum up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.diagnose.bandwidth import bus_factor, size_of
from distdbg.diagnose.op_fields import FIELDS, SessionView
from distdbg.diagnose.query import parse, select
from distdbg.diagnose.summary import read_keys, sum_up
from distdbg.errors import UsageError
from distdbg.record.format import Status
from distdbg.record.forms import Form, read_form, write_form
from tests.support.session_builder import SessionBuilder


@pytest.fixture(scope="module")
def view() -> SessionView:
    """Op 0 of each rank: an all_reduce of 1 MiB; then what differs by rank."""
    build = SessionBuilder(world_size=4)
    build.group("dp", [0, 1])
    for rank in range(4):
        build.op(
            rank, "all_reduce", at_s=1.0, started_s=1.0 + 0.01 * rank, ended_s=1.1,
            site="/job/src/train.py:80 (step)", dtype="float32", op="SUM", inputs=[(262144,)],
        )  # fmt: skip
    build.op(0, "send", group="dp", at_s=2.0, ended_s=2.001, peer=1, tag=5, is_async=True)
    build.op(1, "recv", group="dp", at_s=2.0, ended_s=2.5, tag=5, status=Status.TIMEOUT)
    build.op(2, "broadcast", at_s=3.0, root=3, site="data.py:7 (load it)", dtype="int8", nbytes=10)
    build.op(3, "new_group", at_s=3.0)
    for log in build.session.ranks.values():
        log.began_ns = 10**9
        log.host = f"n{log.rank // 2}"
    return SessionView(build.session)


def fitting(view: SessionView, expression: str) -> list[tuple[int, int]]:
    return [(op.rank, op.at) for op in select(view, parse(expression))]


ALL = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1)]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", ALL),
        ("rank=2", [(2, 0), (2, 1)]),
        ("rank=0-1,3 and kind=all_reduce", [(0, 0), (1, 0), (3, 0)]),
        ("rank!=0-2", [(3, 0), (3, 1)]),
        ("rank >= 2 AND NOT kind=all_reduce", [(2, 1), (3, 1)]),
        ("host=n1 and kind in (broadcast, new_group)", [(2, 1), (3, 1)]),
        ("group=dp", [(0, 1), (1, 1)]),
        ("group in (dp,world) and kind=send", [(0, 1)]),
        ("name='all_reduce' and seq=1 and rank<1", [(0, 0)]),
        ("dtype=int8 or op=sum and rank=0", [(0, 0), (2, 1)]),
        ("(dtype=int8 or op=sum) and rank=2", [(2, 0), (2, 1)]),
        ("root=3", [(2, 1)]),
        ("nbytes=1MiB and rank=0", [(0, 0)]),
        ("nbytes>=1MB and rank=0", [(0, 0)]),
        ("nbytes<0.5KiB and nbytes>0", [(2, 1)]),
        ("peer=1", [(0, 1)]),
        ("peer!=1 and rank=0", [(0, 0)]),
        ("tag=5", [(0, 1), (1, 1)]),
        ("status=timeout", [(1, 1)]),
        ("status=in_flight", [(2, 1), (3, 1)]),
        ("duration>=100ms and not kind=all_reduce", [(1, 1)]),
        ("duration!=100ms", [(0, 1), (1, 1), (2, 1), (3, 1)]),
        ("duration<2ms", [(0, 1)]),
        ("wait>15ms and wait<=30ms", [(2, 0), (3, 0)]),
        ("transfer<75ms and kind=all_reduce", [(3, 0)]),
        ("issued>=2s", [(2, 1), (3, 1)]),
        ("issued<1000us and rank=0", [(0, 0)]),
        ("site=train.py:80 and rank=0", [(0, 0)]),
        ("site='train.py:80 (step)' and rank=0", [(0, 0)]),
        ('site="data.py:7 (load it)"', [(2, 1)]),
        ("site~'src/.*:80' and rank=0", [(0, 0)]),
        ("site~load", [(2, 1)]),
        ("async", [(0, 1)]),
        ("async=yes", [(0, 1)]),
        ("rank=0 and not async", [(0, 0)]),
        ("not (rank=0-2 or kind=new_group)", [(3, 0)]),
        ("not not rank=3 and kind=new_group", [(3, 1)]),
        ("comm=x", []),
    ],
)
def test_an_expression_means_these_ops(
    view: SessionView, expression: str, expected: list[tuple[int, int]]
) -> None:
    assert fitting(view, expression) == expected


@pytest.mark.parametrize(
    ("expression", "column", "why"),
    [
        ("rnak=3", 1, "unknown field 'rnak'"),
        ("rank=3 und kind=x", 8, "expected 'and', 'or' or the end"),
        ("rank=3 and", 11, "expected a field"),
        ("rank 3", 6, "expected = != < <= > >= ~ or 'in' after rank"),
        ("rank=", 6, "expected a value"),
        ("rank=a-b", 6, "'a-b' is no list of ranks such as 0-3,7"),
        ("(rank=1", 8, "expected ')'"),
        ("rank=1)", 7, "expected 'and', 'or' or the end"),
        ("duration>10", 10, "a time has a unit: ns, us, ms, s, min"),
        ("duration>10 ms", 10, "a time has a unit: ns, us, ms, s, min"),
        ("nbytes>1parsec", 8, "the units of a size are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB"),
        ("seq=3ms", 5, "seq is a number without a unit"),
        ("seq=x", 5, "seq is a number, not 'x'"),
        ("kind>x", 5, "kind is a text; it has no order"),
        ("seq~3", 5, "seq is a number; ~ is for texts"),
        ("site~'('", 6, "not a regular expression: missing ), unterminated subpattern at position 0"),
        ("kind in broadcast", 9, "expected '(' after 'in'"),
        ("kind in (a b)", 12, "expected ',' or ')'"),
        ("async=maybe", 7, "async is yes or no, not 'maybe'"),
        ("(" * 500 + "rank=1", 101, "nested too deeply"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_column(expression: str, column: int, why: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(expression)
    assert error.value.what == f"query, column {column}: {why}"
    assert error.value.details[1].endswith("^")


def test_the_nearest_field_is_named() -> None:
    with pytest.raises(UsageError) as error:
        parse("rank=1 and durration>1s")
    assert error.value.hint == "did you mean duration?"


@given(st.text(alphabet="rank=0-3,7 andornotin()'\"<>!~kibms\\.site", max_size=40))
def test_no_expression_raises_anything_but_a_usage_error(view: SessionView, text: str) -> None:
    try:
        test = parse(text)
    except UsageError:
        return
    list(select(view, test))


def test_each_field_can_be_read_of_each_op(view: SessionView) -> None:
    for field in FIELDS.values():
        for op in select(view, parse("")):
            field.read(view, op)


# --------------------------------------------------------------------------------------- summing up


def test_ops_are_summed_up_by_their_keys(view: SessionView) -> None:
    rows = sum_up(view, select(view, parse("")), read_keys("kind,size"))
    assert [row.key for row in rows[:2]] == [("recv", 0), ("all_reduce", 2**20)]
    row = rows[1]
    assert (row.count, row.ended, row.nbytes) == (4, 4, 4 * 2**20)
    assert row.percentile_ns(0.5) == row.percentile_ns(1.0) == 100_000_000
    # 1 MiB in 100, 90, 80 and 70 ms: 4 MiB in 340 ms; 4 ranks: times 2 * 3 / 4
    assert row.algorithm_bandwidth == pytest.approx(4 * 2**20 / 0.34)
    assert row.bus_bandwidth == pytest.approx(1.5 * 4 * 2**20 / 0.34)


def test_what_failed_or_has_not_ended_has_no_bandwidth(view: SessionView) -> None:
    rows = {row.key[0]: row for row in sum_up(view, select(view, parse("")), ("kind",))}
    assert (rows["broadcast"].count, rows["broadcast"].ended) == (1, 0)
    assert rows["broadcast"].percentile_ns(0.5) is None
    assert rows["broadcast"].bus_bandwidth is None
    assert rows["recv"].algorithm_bandwidth is None


def test_percentiles_are_values_that_were_there() -> None:
    build = SessionBuilder(world_size=1)
    for index in range(100):
        build.op(0, "barrier", at_s=float(index), ended_s=index + (index + 1) / 1000)
    view = SessionView(build.session)
    [row] = sum_up(view, select(view, parse("")), ())
    shares = [row.percentile_ns(share) for share in (0.5, 0.99, 1.0)]
    assert shares == [51_000_000, 100_000_000, 100_000_000]


def test_an_unknown_key_is_told() -> None:
    with pytest.raises(UsageError, match="cannot be summed up by 'colour'"):
        read_keys("kind,colour")


def form(kind: str, inputs: list[int], outputs: list[int], nbytes: int = 0) -> Form:
    return read_form(
        write_form(
            name=kind, kind=kind, dtype="float32",
            inputs=[(n,) for n in inputs], outputs=[(n,) for n in outputs], nbytes=nbytes,
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "inputs", "outputs", "size", "factor"),
    [
        ("all_reduce", [100], [100], 400, 1.5),
        ("all_gather", [25], [25] * 4, 400, 0.75),
        ("reduce_scatter", [100], [25], 400, 0.75),
        ("all_to_all", [100], [100], 400, 0.75),
        ("broadcast", [100], [100], 400, 1.0),
        ("reduce", [100], [], 400, 1.0),
        ("gather", [25], [], 400, 0.75),
        ("gather", [25], [25] * 4, 400, 0.75),
        ("scatter", [], [25], 400, 0.75),
        ("scatter", [25] * 4, [25], 400, 0.75),
        ("recv", [], [100], 400, 1.0),
        ("send", [100], [], 400, None),
        ("barrier", [], [], 0, None),
    ],
)
def test_sizes_and_factors_are_those_of_nccl_tests(
    kind: str, inputs: list[int], outputs: list[int], size: int, factor: float | None
) -> None:
    assert size_of(form(kind, inputs, outputs), kind, 4) == size
    assert bus_factor(kind, 4) == factor


def test_where_shapes_do_not_tell_the_recorded_size_counts() -> None:
    assert size_of(Form(nbytes=77), "all_reduce", 4) == 77
    assert size_of(Form(dtype="odd", nbytes=77), "all_gather", 4) == 77
