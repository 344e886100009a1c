"""Runs in other tools' formats: Prometheus, OpenTelemetry, Perfetto, torch and tables.

    metrics/   families of metrics, and how they are written for a scraper
    otel/      spans, metrics and log records for a collector
    trace/     timelines: Perfetto and Chrome
    tables/    rows: CSV and Parquet
    torch_fr/  dumps as torch's flight recorder writes them

All of it is read from records and findings; nothing here asks a rank, and only `agent` and `cli` import it.
"""
