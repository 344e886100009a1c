"""Writes the page of what is sent by OTLP for the reference: the table of attributes, and the rules."""

from __future__ import annotations

from collections.abc import Iterable

from distdbg import config
from distdbg.export.metrics.families import FAMILIES
from distdbg.export.otel.attributes import ATTRIBUTES
from distdbg.export.otel.metric_names import metric_name, metric_unit
from distdbg.export.otel.sampling import FULL, MAX_STRIDE

INTRODUCTION = """\
# OpenTelemetry

What agents send to a collector when `DISTDBG_OTLP` or `--otlp` asks for it ([how to](../how-to/send-traces.md)). All of it is read from
the records: a rank imports nothing, sends nothing and waits for nobody.

## Spans

| span | in which trace | parent | sent by |
|---|---|---|---|
| `all_reduce #42 on dp` | that of the collective | none | the agent that has the first rank of the group |
| `all_reduce rank 3` | that of the collective | the one above | the agent of the rank |
| `new_group #2 on world`, `monitored_barrier ...`, `breakpoint ...` | one each; they are numbered by their kind | as above | as above |
| `debugger rank 3` | a trace of its own: a rank at the prompt of a debugger | none | the agent of the rank |
| `send rank 0 to 3` | that of the message; kind PRODUCER | none | the agent of the sender |
| `recv rank 3 from 0` | that of the message; kind CONSUMER | the send, to which it has a link too | the agent of the receiver |
| a `span()` block, by its name | that of the outermost block, one per rank | the block around it | the agent of the rank |
| `dist.mark`, by its name | that of the block around it, else its own | the block around it | the agent of the rank |
| `mismatch`, `deadlock` ...: a finding | that of the collective that it is about | `all_reduce #42 on dp` | the agent of the first host, which judges |
| `all_reduce` | the program's own | the span of the program that was active | the agent of the rank |

**Ids are hashes**, so nobody has to hand them on. The trace of a collective is the BLAKE2b hash, 16 bytes, of run, start of the ranks, name of
the group, `collective` and the number of the op on the group; of a message, of sender, receiver, tag and which of those messages it is. A span's id is the
last half of its trace's, XOR the hash, 8 bytes, of its rank and its role. `init_process_group` called again under one `DISTDBG_RUN` begins the numbers anew, and with
them the ids.

Only the names of root spans have a number in them. Whoever makes metrics of spans leaves out those with `distdbg.role` `root`.

**Events** in a span: `started`, when the last rank had come; `exception`, with `exception.type` and `exception.message`, where it failed. The status is ERROR
where an op failed, was never ended, or a finding is an error; `error.type` says which.

**Messages.** Both sides count by sender, receiver and tag. Where a record has lost events a number is known only if that pair uses one tag and no
recv is from any rank; a recv that was begun while one from any rank with its tag was in flight is not known either. It is then a trace of its own,
without a link. A link is never wrong.

**The program's own spans.** When the program traces with OpenTelemetry and has a span active as it calls an op, the op is shown twice: as a child of
that span, in the program's trace, and with the other ranks in the trace of the op. Each has a link to the other. The sampled flag of
the program's span decides on the first, the sampler below on the second. An export has the second of all ops, and the first of those in sampled spans.

**Times** are wall times of the rank's host, by the clocks that its first record was begun with.

## Which ops are kept

| `OTEL_TRACES_SAMPLER` | what is kept |
|---|---|
| not set | by number: the first {full} of each numbering, then every 2nd, 4th ... and from {last} on every {stride}th |
| `always_on`, `always_off` | all, nothing |
| `traceidratio` | by the last 8 bytes of the trace id, as the SDKs do; `OTEL_TRACES_SAMPLER_ARG` is the share |
| `parentbased_...` | the same; a span in the trace of the program is kept if the program's is |

This is decided from run, group and number alone, so on all hosts alike: **all ranks of an op or none.**

**The tail** keeps what is worth it whatever the sampler says: what failed, was never ended, took {slow} s or longer (`DISTDBG_OTLP_SLOW_S`), was a stop in a
debugger, or is what a finding is about. Decided from what one rank's record says of the end, and then kept of all ranks of the host; of ops with
ranks of other hosts, the agents tell each other, at most 16 ops each tenth of a second. They look back for it in their records, so
of a rank that has called thousands of ops in the meantime it is missing.  A message is kept with both of its ends. What the first rank of a group never came to has its root when the job is over, from another rank of that host.

**Budget.** An agent sends {rate} spans a second (`DISTDBG_OTLP_SPANS_PER_S`), and ten times as many at once after a quiet time; beside those of the tail. Of
more it keeps the traces with the smallest ids and leaves out the others, all ranks of its host. So of two hosts that both leave out,
one has kept a part of what the other has.

**Missed.** A record keeps the newest 4,096 events (`DISTDBG_RECORD_OPS`). An agent looks twice a second, up to 20 times where ranks are so fast that some would be missed, and less often where that would take more
than a two-hundredth of a core; of a rank that calls more ops in between it reads the newest. The others are counted as missed, and missing in their traces.

`distdbg_agent_spans_total`, over OTLP `distdbg.agent.spans`, says what became of them: `sent`, `failed` (not taken by the collector), `dropped` (no room in the
queue); and of what no span was made: `unsampled` (by the sampler, or beyond the budget) and `missed`, which count ops.

## Log records

| event name | severity | what |
|---|---|---|
| `distdbg.finding` | ERROR, WARN, INFO by its severity | a finding of the diagnosis, once; with the ids of its span where it is about an op |
| `distdbg.rank.error` | ERROR; WARN for a suspicion | what a rank wrote into its record: an error of an op, what the check noticed, the exception that ended it |
| `distdbg.rank.end` | ERROR; WARN where the launcher ended it; INFO when it ended well | how the process of a rank ended |
| `distdbg.start` | WARN | the launcher has started the ranks again |

What ranks print is not sent: `--redirects` and `--log-dir` keep it in files, for a collector that reads files.

## What it costs

Ranks: nothing, but for the context of the program's own spans. The agent: at most a two-hundredth of a core for looking, whatever the ranks do, and some 130 microseconds for each
span that is sent, 80 of them for OpenTelemetry to encode it ([why](../decisions/0045-spans-by-the-sdk.md)); with 8 ranks on 2 busy cores it took 0.7 % of a core without and 2.0 % with
traces, 98 spans a second. Memory: 25 MiB more over
HTTP, 35 MiB over gRPC, most of it for the libraries, which nobody loads who does not ask.

A collector that is slow, down or back again is noticed by nobody but the sender: what has no room in the queue is counted. A batch that was not taken is not sent again,
and the next waits, from 1 s up to 30 s. When the job is over the agent sends what is left, for two seconds at the most (`DISTDBG_EXPORT_END_S`), and for half a second where
the collector took nothing when it was asked last. An agent that dies is started again by the launcher and reads what the records still have:
spans of the last moments may then be missing, or come twice with the same ids.

## Variables

OpenTelemetry's own, as its specification says. Read by its exporters: `OTEL_EXPORTER_OTLP_ENDPOINT`, `_HEADERS`, `_TIMEOUT`, `_COMPRESSION`, `_CERTIFICATE`,
`_CLIENT_KEY`, `_CLIENT_CERTIFICATE`, `_INSECURE`, and the same with `_TRACES_`, `_METRICS_`, `_LOGS_`. Read here: `OTEL_EXPORTER_OTLP_PROTOCOL`
(`http/protobuf` or `grpc`) and those by signal, `OTEL_TRACES_SAMPLER` and `_ARG`, `OTEL_SERVICE_NAME` (else `distdbg`), `OTEL_RESOURCE_ATTRIBUTES`,
`OTEL_SDK_DISABLED`, `OTEL_TRACES_EXPORTER=none` and so on, `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_SCHEDULE_DELAY`,
`OTEL_BSP_MAX_EXPORT_BATCH_SIZE`, the same with `OTEL_BLRP_` for log records, `OTEL_METRIC_EXPORT_INTERVAL`. A value that does not fit is said in the
agent's log and passed over. Metrics are cumulative. Not supported: `http/json`, baggage, attribute limits, delta temporality, exporters other than OTLP.

"""


def otel_page() -> str:
    """The rules, then the tables."""
    defaults = {one.name: one.default for one in config.VARIABLES}
    rules = INTRODUCTION.format(
        full=f"{FULL:,}",
        last=f"{FULL * MAX_STRIDE // 2 + 1:,}",
        stride=f"{MAX_STRIDE:,}",
        slow=f"{defaults['DISTDBG_OTLP_SLOW_S']:g}",
        rate=f"{defaults['DISTDBG_OTLP_SPANS_PER_S']:g}",
    )
    return rules + "\n".join((*_attributes(), "", *_metrics())) + "\n"


def _attributes() -> Iterable[str]:
    yield "## Attributes"
    yield ""
    yield "An attribute that has nothing to say is not there."
    yield ""
    yield "| name | type | of | meaning |"
    yield "|---|---|---|---|"
    for one in ATTRIBUTES:
        yield f"| `{one.name}` | {one.kind} | {', '.join(one.of)} | {one.about} |"


def _metrics() -> Iterable[str]:
    yield "## Metrics"
    yield ""
    yield (
        "The same as [for Prometheus](metrics.md), with the same labels as attributes. A collector that writes "
        "them for Prometheus, and Prometheus where it takes OTLP itself, make the names on the right of them."
    )
    yield ""
    yield "| name | unit | for Prometheus |"
    yield "|---|---|---|"
    for family in FAMILIES:
        yield f"| `{metric_name(family)}` | {metric_unit(family)} | `{family.name}` |"
