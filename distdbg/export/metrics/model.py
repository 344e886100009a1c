"""A collected set of metrics, before it is written for a scraper, a file or a collector. Plain values.

`labels` are the values in the order of `Family.labels`; `run` and `host` come to each sample when it is
written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from distdbg.export.metrics.families import FAMILIES, MetricFamily


class Sample(NamedTuple):
    """One series of a counter, gauge or info; an info has the value 1."""

    labels: tuple[str, ...]
    value: float


class Exemplar(NamedTuple):
    """An op of a bucket that has a trace."""

    value_ns: int
    trace_id: str
    wall_s: float


class Histogram(NamedTuple):
    """One set of labels of a histogram, with the buckets of records."""

    labels: tuple[str, ...]
    buckets: tuple[int, ...]
    sum_ns: int
    exemplars: tuple[Exemplar, ...] = ()

    @property
    def total(self) -> int:
        """How many; that of the buckets, so that they agree whenever the record was read."""
        return sum(self.buckets)


class Samples(NamedTuple):
    """One family with what is known of it: histograms for a histogram, else samples."""

    family: MetricFamily
    samples: tuple[Sample, ...] = ()
    histograms: tuple[Histogram, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """All that one agent serves of one run. Families without a sample are not in it."""

    run: str
    host: str
    families: tuple[Samples, ...]

    def __iter__(self) -> Iterator[Samples]:
        return iter(self.families)

    def value(self, name: str, *labels: str) -> float | None:
        """The value of one series, as tests and pages ask for it."""
        for family, samples, _ in self.families:
            if family.name == name:
                return next((value for known, value in samples if known == labels), None)
        return None


def by_family(
    some: Sequence[Metrics],
) -> Iterator[tuple[MetricFamily, list[tuple[Metrics, Samples]]]]:
    """Each family once, in the order of the table, with what each of several runs has of it."""
    found: dict[str, list[tuple[Metrics, Samples]]] = {}
    for metrics in some:
        for samples in metrics:
            found.setdefault(samples.family.name, []).append((metrics, samples))
    for family in FAMILIES:
        if family.name in found:
            yield family, found[family.name]
