"""What is sent to an OpenTelemetry collector while a job runs: spans of ops, log records, metrics.

    records, many times a second -> follower, one per rank -> which ops of all ranks of the host are kept
        -> spans -> queue -> sender -> collector

    tracing.py    what the agent owns: the two threads, counts, the end
    settings.py   OTEL_* variables that the SDK's own code does not read
    trace_events.py  what the agent's loop tells, and what is made of it and of the records
    head.py       which numbers of a group the head keeps, known before any op is looked at
    tail.py       what was slow or failed on one rank, for all of the host
    records.py    all records of the host, one look after the other
    row.py        an op as far as its words tell
    follower.py   one record: what is new in it, at a cost that does not depend on how fast the rank is
    groups.py     the groups of a record
    span_templates.py      ops that differ in numbers and times alone: the spans of one by those of another
    queues.py     what waits to be sent: bounded, with counts of what had no room
    sender.py     one thread that sends, and what it does while nobody takes it
    listening.py  what OpenTelemetry's code says of it in words
    exporters.py  the exporters of OpenTelemetry, by protocol

Two threads of the agent's process, neither of which touches what the loop has: they read the records by
themselves. Nothing waits for a collector: neither the job, nor the loop, nor the follower.

session  what OpenTelemetry's HTTP exporters send with
"""
