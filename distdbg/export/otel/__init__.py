"""A run for OpenTelemetry: spans, log records and metrics as plain values, and the SDK's form of them.

    ids.py         trace and span ids that all hosts derive alike
    attributes.py  the table of attributes, from which the reference is made
    model.py       spans and log records as plain values
    recorded_ops.py       an op as this package needs it, from what a record says
    ops.py         spans of collectives, messages and asides
    matching.py    which send a recv took, by numbers that both sides know
    regions.py     spans of `span()` blocks, and marks
    found.py       findings, ends and restarts as log records and spans
    sampling.py    which ops are kept: all ranks of one or none
    sdk.py         the same values as opentelemetry-sdk's; all that imports it

Everything but `sdk` is pure and imports no OpenTelemetry.

contexts      in which span of the program's own each thread of a rank is
metric_names  what the families of metrics are called in OpenTelemetry
of_log        the spans of a rank that was read for an export
post          sends the lines of `file` to a collector instead
sdk_logs      log records as opentelemetry-sdk's, for its exporters
sdk_metrics   metrics as opentelemetry-sdk's, for its exporters
templates     spans of ops as JSON, fast
"""
