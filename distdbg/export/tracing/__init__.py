"""What is sent to an OpenTelemetry collector while a job runs: spans of ops, log records, metrics.

    records, many times a second -> follower, one per rank -> which ops of all ranks of the host are kept
        -> spans -> queue -> sender -> collector

    tracing        what the agent owns: the two threads, counts, the end
    settings       OTEL_* variables that the SDK's own code does not read
    trace_events   what the agent's loop tells, and what is made of it and of the records
    head           which numbers of a group the head keeps, known before any op is looked at
    tail           what was slow or failed on one rank, for all of the host
    records        all records of the host, one look after the other
    follower       one record: what is new in it, at a cost that does not depend on how fast the rank is
    row            what followers share, and an op as its events tell it
    queues         what waits to be sent: bounded, with counts of what had no room
    sender         one thread that sends, and what it does while nobody takes it
    exporters      the exporters of OpenTelemetry, by protocol;  session: what those of HTTP send with

Two threads of the agent's process, neither of which touches what the loop has: they read the records by
themselves. Nothing waits for a collector: neither the job, nor the loop, nor the follower.
"""
