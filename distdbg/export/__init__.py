"""Runs in other tools' formats: Prometheus, OpenTelemetry, Perfetto, torch and tables.

Of a run that is over, or still running:

    formats    the table of formats that a run can be written in
    reading    a run as the formats need it;  window: what a rank did, cut to a time;  run_clock: its times
    findings   what the diagnosis says of a start of a job, within bounded memory
    output     files and folders that are there whole or not at all
    otel/      spans, metrics and log records for a collector
    trace/     timelines: Perfetto and Chrome;  wire: protobuf's wire format
    tables/    rows: CSV and Parquet
    torch_fr/  dumps as torch's flight recorder writes them

While a job runs:

    metrics/   families of metrics, and how they are written for a scraper
    outlets/   the ways out of an agent's metrics and traces
    tracing/   spans of running ranks, to a collector
    exporter/  `distdbg exporter`: metrics of runs from their records
    http/      a small HTTP server for scrapers

All of it is read from records and findings; nothing here asks a rank. Only `agent` and `cli` import it, and
it imports neither: what an outlet needs of an agent is in `outlets/source.py`.
"""
