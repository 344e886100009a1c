from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdbg.export.metrics.negotiate import OPENMETRICS, PROTOBUF, TEXT, Writer, negotiate

#: As Prometheus sends them.
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_2_42_NATIVE = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,"
    "application/openmetrics-text;version=1.0.0;q=0.8,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "writer"),
    [
        (PROMETHEUS_2_42, OPENMETRICS),
        (PROMETHEUS_2_42_NATIVE, PROTOBUF),
        (PROMETHEUS_3, OPENMETRICS),
        (BROWSER, TEXT),
        ("*/*", TEXT),
        ("", TEXT),
        (None, TEXT),
        ("image/png", TEXT),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.2", TEXT),
        ("application/openmetrics-text; version=2.0.0, text/plain;q=0.1", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=nonsense, text/plain", TEXT),
        ("application/vnd.google.protobuf;proto=other.Message;encoding=delimited", TEXT),
        ("application/vnd.google.protobuf", TEXT),
        ('APPLICATION/OpenMetrics-Text ; Version="1.0.0"', OPENMETRICS),
    ],
)
def test_a_scraper_gets_what_it_asks_for(accept: str | None, writer: Writer) -> None:
    assert negotiate(accept) is writer


@given(st.text())
def test_no_header_is_an_error(accept: str) -> None:
    assert negotiate(accept) in (TEXT, OPENMETRICS, PROTOBUF)
