"""Runs in other tools' formats: Prometheus, OpenTelemetry, Perfetto, torch and tables.

    metrics/   families of metrics, and how they are written for a scraper
    otel/      spans, metrics and log records for a collector
    trace/     timelines: Perfetto and Chrome
    tables/    rows: CSV and Parquet
    torch_fr/  dumps as torch's flight recorder writes them

While a job runs:

    outlets/   the ways out of an agent's metrics and traces
    tracing/   spans of running ranks, to a collector
    exporter/  `distdbg exporter`: metrics of runs from their records
    http/      a small HTTP server for scrapers

All of it is read from records and findings; nothing here asks a rank. Only `agent` and `cli` import it, and
it imports neither: what an outlet needs of an agent is in `outlets/source.py`.

findings  what the diagnosis says of a start of a job, within bounded memory
formats   the table of formats that a finished or living run can be written in
http      A small HTTP server for scrapers
metrics   metrics for Prometheus
otel      A run for OpenTelemetry
output    files and folders that are there whole or not at all
reading   A run as the formats need it
tables    A run as one table, a row for each op, mark, span and finding of each rank
torch_fr  dumps as torch's flight recorder writes them, so that torch's own analyzer can look at a run of
          ours
trace     Perfetto's TrackEvent protobuf and Chrome's JSON
window    cuts what a rank did to a time
wire      protobuf's wire format
"""
