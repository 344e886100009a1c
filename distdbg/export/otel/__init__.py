"""A run for OpenTelemetry: spans, log records and metrics as plain values, and the SDK's form of them.

    ids                          trace and span ids that all hosts derive alike
    attributes                   the table of attributes, from which the reference is made
    metric_names                 what the families of metrics are called in OpenTelemetry
    model                        spans and log records as plain values
    recorded_ops                 an op as this package needs it, from what a record says
    ops                          spans of collectives, messages and asides
    matching                     which send a recv took, by numbers that both sides know
    regions                      spans of `span()` blocks, and marks; the program's own span that each thread
                                 is in
    log_records                  findings, ends and restarts as log records and spans
    sampling                     which ops are kept: all ranks of one or none
    of_log                       the spans of a rank that was read for an export;  templates: as JSON, fast
    file                         as lines of JSON;  collector: these lines to a collector
    sdk, sdk_logs, sdk_metrics   the same values as opentelemetry-sdk's; all that imports it

Everything but the last is pure and imports no OpenTelemetry.
"""
