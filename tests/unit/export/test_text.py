from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.openmetrics import exposition
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from distdbg.export.metrics.bounds import KINDS, most_series
from distdbg.export.metrics.client import describe, to_client
from distdbg.export.metrics.collect import collect
from distdbg.export.metrics.families import FAMILIES, MetricType, Scope
from distdbg.export.metrics.model import Exemplar, Histogram, Metrics
from distdbg.export.metrics.samples import CausingRank, Exemplars, HostFacts
from distdbg.export.metrics.text import newest_by_le, to_openmetrics, to_text
from distdbg.export.metrics.totals import Accumulator
from distdbg.record.printable import printable
from distdbg.record.rank_state import RankState
from tests.unit.export.made_up import buckets, count, host, job_of, large_host, rank

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PAGE = Path(__file__).parents[3] / "docs" / "metrics_page.py"
TRACE = "0af7651916cd43dd8448eb211c80319c"


def whole_host(run: str = "0412", name: str = "n01") -> HostFacts:
    """Every family has a sample."""
    rows = [count(), count("barrier", "world", dtype="", nbytes=0, failed=1)]
    return host(
        rank(0, rows, seqs={"dp": 4, "world": 4}, found={"mismatch": 1}, lost={"strings": 0}),
        rank(1, rows, is_up=False, is_dead=True, state=RankState.DEAD, since_progress_s=9.0),
        run=run,
        name=name,
    )


def whole(run: str = "0412", name: str = "n01", exemplars: Exemplars | None = None) -> Metrics:
    facts = whole_host(run, name)
    totals = Accumulator()
    totals.take(facts)
    job = job_of(
        [totals],
        findings_now={"straggler": 1},
        findings_total={"straggler": 2},
        causes=(CausingRank(3, "straggler", "a.py:8 (step)", "0-2"),),
    )
    return collect(facts, totals, job, exemplars or {})


def families(metrics: Metrics, *, is_open: bool) -> dict[str, Metric]:
    if is_open:
        words = to_openmetrics(metrics).decode()
        return {one.name: one for one in openmetrics.text_string_to_metric_families(words)}
    return {one.name: one for one in text_string_to_metric_families(to_text(metrics).decode())}


def samples(metrics: Metrics, *, is_open: bool) -> dict[tuple[str, tuple], float]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in families(metrics, is_open=is_open).values()
        for one in family.samples
    }


@pytest.mark.parametrize("is_open", [False, True])
def test_every_family_is_read_back_with_its_type_unit_and_help(is_open: bool) -> None:
    found = families(whole(), is_open=is_open)
    assert len(found) == len(FAMILIES)
    for family in FAMILIES:
        # The parser of the older format names counters as OpenMetrics does.
        name = family.name.removesuffix("_total")
        if is_open:
            name = name.removesuffix("_info")
            assert found[name].unit == family.unit
        assert found[name].documentation == family.about
        is_plain_info = family.type is MetricType.INFO and not is_open
        assert found[name].type == ("gauge" if is_plain_info else family.type.value)


def test_both_formats_say_the_same() -> None:
    metrics = whole()
    assert samples(metrics, is_open=False) == samples(metrics, is_open=True)


def test_a_sample_has_the_labels_of_its_family() -> None:
    found = families(whole(), is_open=True)
    for family in FAMILIES:
        name = family.name.removesuffix("_total").removesuffix("_info")
        for sample in found[name].samples:
            expected = {"run", "host", *family.labels}
            if sample.name.endswith("_bucket"):
                expected.add("le")
            assert set(sample.labels) == expected, sample.name


class Registered:
    """The same for prometheus_client's own writers."""

    def __init__(self, *metrics: Metrics) -> None:
        self.metrics = metrics

    def describe(self) -> Iterator[Metric]:
        return describe()

    def collect(self) -> Iterator[Metric]:
        return to_client(*self.metrics)


TRACED: Exemplars = {("all_reduce", "dp"): [(1500, TRACE, 20.0), (5000, TRACE, 1_763_784_000.25)]}


@pytest.mark.parametrize(
    "some",
    [
        [whole()],
        [whole('a b\\"\n', "\N{SNOWMAN}")],
        [whole("\udcff", "\udcfe")],
        [whole("a" * 200)],
        [whole(exemplars=TRACED)],
        [whole("a"), whole("b", "n02")],
    ],
)
def test_prometheus_client_writes_the_same(some: list[Metrics]) -> None:
    registry = CollectorRegistry()
    registry.register(Registered(*some))

    def lines(words: bytes) -> list[str]:
        # It sorts the labels by name; the order means nothing.
        found = []
        for line in words.decode().splitlines():
            labels = re.findall(r'[{,](\w+="(?:[^"\\\\]|\\\\.)*")', line)
            found.append(" ".join((line.partition("{")[0], *sorted(labels))))
        return found

    written = exposition.generate_latest(registry)
    assert lines(to_openmetrics(*some)) == lines(written)
    assert read(to_openmetrics(*some)) == read(written)


def read(words: bytes) -> dict[tuple[str, tuple], tuple[float, object]]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): (one.value, one.exemplar)
        for family in openmetrics.text_string_to_metric_families(words.decode())
        for one in family.samples
    }


def test_a_registry_knows_all_names_before_anything_is_read() -> None:
    registry = CollectorRegistry()
    registry.register(Registered())
    for family in FAMILIES:
        with pytest.raises(ValueError, match=family.name):
            Gauge(family.name, "of somebody else", registry=registry)
    assert list(registry.collect()) == []


@pytest.mark.parametrize("metrics", [whole(), whole('a b\\"\n', "\N{SNOWMAN}")])
@pytest.mark.prometheus
def test_promtool_has_nothing_to_say(metrics: Metrics) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=to_text(metrics),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_names_of_openmetrics_are_different_without_their_suffixes() -> None:
    names = [one.name.removesuffix("_total").removesuffix("_info") for one in FAMILIES]
    assert len(set(names)) == len(names)


def test_a_family_of_a_unit_ends_with_it() -> None:
    for family in FAMILIES:
        assert family.name.removesuffix("_total").endswith(family.unit)
        assert family.name.endswith("_total") == (family.type is MetricType.COUNTER)


#: Longer ones are cut when they are escaped.
_TEXT = st.text(st.characters(exclude_categories=()), max_size=12)


@given(_TEXT, _TEXT, _TEXT, _TEXT)
def test_any_name_is_read_back_as_a_terminal_may_show_it(
    run: str, name: str, group: str, dtype: str
) -> None:
    facts = host(rank(0, [count(group=group, dtype=dtype)]), run=run, name=name)
    metrics = collect(facts, Accumulator())
    for is_open in (False, True):
        found = families(metrics, is_open=is_open)["distdbg_ops"].samples[0].labels
        for label, value in (("run", run), ("host", name), ("group", group), ("dtype", dtype)):
            expected = "none" if (label, value) == ("dtype", "") else value
            assert found[label] == printable(expected)
            assert found[label].isprintable()


def test_a_percent_sign_is_no_place_for_a_label() -> None:
    facts = host(rank(0, [count(group="%s")]), run="%s%d", name="100 %")
    found = samples(collect(facts, Accumulator()), is_open=True)
    labels = {"run": "%s%d", "host": "100 %", "rank": "0"}
    assert ("distdbg_rank_up", tuple(sorted(labels.items()))) in found


def test_a_histogram_counts_below_each_boundary() -> None:
    times = buckets(b0=1, b9=2, b10=4, b11=8, b38=16, b39=32)
    facts = host(rank(0, [count(duration_buckets=times, duration_ns=2_500_000_000)]))
    totals = Accumulator()
    totals.take(facts)
    found = samples(collect(facts, totals, job_of([totals])), is_open=True)
    below = {
        dict(labels)["le"]: value
        for (name, labels), value in found.items()
        if name == "distdbg_op_duration_seconds_bucket"
    }
    assert len(below) == 30
    assert below["1.024e-06"] == 3
    assert below["2.048e-06"] == 7
    assert below["4.096e-06"] == 15
    assert below["274.877906944"] == 15
    assert below["+Inf"] == 63
    by_name = {name: value for (name, _), value in found.items()}
    assert by_name["distdbg_op_duration_seconds_count"] == 63
    assert by_name["distdbg_op_duration_seconds_sum"] == 2.5


def test_the_newest_op_of_a_bucket_is_its_exemplar() -> None:
    older, newer = "1" * 32, "2" * 32
    some = [(1500, newer, 20.0), (1400, older, 10.0), (5000, TRACE, 1_763_784_000.25)]
    found = families(whole(exemplars={("all_reduce", "dp"): some}), is_open=True)
    reported = {
        sample.labels["le"]: sample.exemplar
        for sample in found["distdbg_op_duration_seconds"].samples
        if sample.exemplar
    }
    assert reported["2.048e-06"].labels == {"trace_id": newer}
    exemplar = reported["8.192e-06"]
    assert exemplar.labels == {"trace_id": TRACE}
    assert exemplar.value == 5e-6
    assert float(exemplar.timestamp) == 1_763_784_000.25
    assert len(reported) == 2


def test_the_older_text_has_no_exemplars() -> None:
    some = {("all_reduce", "dp"): [(1500, TRACE, 20.0)]}
    assert TRACE.encode() not in to_text(whole(exemplars=some))


def test_an_exemplar_that_is_too_long_is_left_out() -> None:
    one = Histogram(("all_reduce", "dp"), buckets(), 0, (Exemplar(5, "a" * 121, 1.0),))
    assert not newest_by_le(one)


def test_who_does_not_speak_for_the_job_serves_nothing_of_it() -> None:
    metrics = collect(whole_host(), Accumulator())
    assert all(family.scope is not Scope.JOB for family, _, _ in metrics)


def test_what_can_happen_is_told_before_it_has() -> None:
    metrics = whole()
    assert metrics.value("distdbg_findings", "deadlock") == 0
    assert metrics.value("distdbg_findings", "straggler") == 1
    assert metrics.value("distdbg_ranks", "holds the GIL") == 0
    assert metrics.value("distdbg_agent_spans_total", "dropped") == 0


def test_what_is_not_known_of_a_rank_has_no_sample() -> None:
    facts = host(rank(7, None, cpu_s=None, rss_nbytes=None))
    metrics = collect(facts, Accumulator())
    assert metrics.value("distdbg_rank_up", "7") == 1
    assert metrics.value("distdbg_rank_cpu_seconds_total", "7") is None
    assert metrics.value("distdbg_rank_resident_memory_bytes", "7") is None


def test_a_host_without_ranks_is_served() -> None:
    metrics = collect(host(), Accumulator())
    assert metrics.value("distdbg_dead_ranks") == 0
    assert families(metrics, is_open=True)


def served(hosts: int, ranks: int, dtypes: tuple[str, ...]) -> tuple[int, list[int]]:
    """Series of the whole job and of each host, counted in what is written.

    But for the first one all hosts are alike: of more than two the last stands for those between.
    """
    looked_at = sorted({0, min(1, hosts - 1), hosts - 1})
    facts = [large_host(at * ranks, ranks, dtypes) for at in looked_at]
    totals = [Accumulator() for _ in facts]
    totals[0].take(facts[0])
    # All hosts have the same kinds and groups, so the first one's histograms are as many as all.
    job = job_of(totals[:1], world_size=hosts * ranks)
    found = []
    for at, (one, total) in enumerate(zip(facts, totals, strict=True)):
        metrics = collect(one, total, job if at == 0 else None)
        lines = [line for line in to_text(metrics).splitlines() if not line.startswith(b"#")]
        assert len(lines) == metrics.value("distdbg_agent_series")
        assert len(lines) == len({line.rsplit(b" ", 1)[0] for line in lines})
        found.append(len(lines))
    found += found[-1:] * (hosts - len(found))
    return sum(found), found


def load_page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_page", PAGE)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return page


@pytest.mark.parametrize(("hosts", "ranks", "one", "two"), load_page().MEASURED)
def test_a_job_has_as_many_series_as_the_reference_says(
    hosts: int, ranks: int, one: int, two: int
) -> None:
    for dtypes, expected in ((("float32",), one), (("float32", "bfloat16"), two)):
        every, of_hosts = served(hosts, ranks, dtypes)
        assert every == expected < 60_000
        assert of_hosts[0] <= most_series(ranks, is_first=True)
        assert max(of_hosts[1:], default=0) <= most_series(ranks, is_first=False)


def test_whatever_ranks_do_an_agent_serves_no_more_than_it_says() -> None:
    words = [f"word {i}" for i in range(100)]
    rows = [
        count(kind, f"group {group}", dtype=dtype, instance=group)
        for kind in (*sorted(KINDS), "kind 77", "kind 78")
        for group in range(20)
        for dtype in ("", *words[:12])
    ]
    many = dict.fromkeys(words, 1)
    seqs = {f"group {group}": 1 for group in range(100)}
    ranks = [rank(at, rows, found=many, lost=many, seqs=seqs) for at in range(4)]
    facts = host(*ranks)
    agent = replace(facts.agent, spans=many, failures=many, queues=many)
    totals = Accumulator()
    facts = replace(facts, agent=agent)
    totals.take(facts)
    causes = [CausingRank(rank, "deadlock", f"a.py:{rank} (step)") for rank in range(100)]
    job = job_of([totals], findings_now=many, findings_total=many, causes=causes)
    found = collect(facts, totals, job).value("distdbg_agent_series") or 0
    most = most_series(len(ranks), is_first=True)
    assert 0.9 * most < found <= most
    assert most_series(8, is_first=False) < 8_000


def test_several_runs_are_written_as_one() -> None:
    some = [whole("a"), whole("b", "n02")]
    for is_open, write in ((False, to_text), (True, to_openmetrics)):
        words = write(*some).decode()
        assert len(re.findall("^# TYPE", words, re.MULTILINE)) == len(FAMILIES)
        parse = openmetrics.text_string_to_metric_families
        found = list((parse if is_open else text_string_to_metric_families)(words))
        runs = {sample.labels["run"] for one in found for sample in one.samples}
        assert runs == {"a", "b"}
