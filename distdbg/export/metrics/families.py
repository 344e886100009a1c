"""Every metric: its name, type, unit, labels and meaning, and who serves it. The reference is made from here.

Names follow Prometheus' rules: base units, `_total` on counters. Each sample also has the labels `run` and
`host`. No label grows with steps: groups beyond `MAX_GROUPS` are counted together as `OTHER_GROUP`.

Scopes, and with them how many series there are:

    rank   one per rank, served by the agent of its host
    host   the sum over the ranks of a host, served by its agent
    job    the sum over all ranks of the job, served by the agent of the job's first host alone
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: The names of groups that are labels; the others of a run share `OTHER_GROUP`.
MAX_GROUPS: Final = 16
OTHER_GROUP: Final = "(other)"
#: Data types per kind and group; more share this word. It is also what is said of an op without one.
MAX_DTYPES: Final = 8
OTHER_DTYPE: Final = "(other)"
NO_DTYPE: Final = "none"
#: Values of any other label that a program may have a say in, as `check`.
MAX_WORDS: Final = 32
#: Ranks that are told to be to blame: of one verdict, so each has one kind.
MAX_CAUSES: Final = 64
#: Words of labels, told as 0 before they have happened: of `check`, `what`, `outcome` and `signal`.
CHECKS: Final = (
    "mismatch", "nonfinite", "buffer_changed", "diverged", "suspicion",
    "rank_left", "peer_lost", "timeout", "aborted", "other",
)  # fmt: skip
LOST: Final = ("strings", "sites", "parked_ops", "waits", "counters")
OUTCOMES: Final = ("sent", "unsampled", "dropped", "missed", "failed")
SIGNALS: Final = ("traces", "metrics", "logs", "push", "textfile")


class MetricType(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Scope(StrEnum):
    RANK = "rank"
    HOST = "host"
    JOB = "job"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFamily:
    """One metric. `name` is as queries see it, `_total` and `_info` included; without `_bucket`."""

    name: str
    type: MetricType
    scope: Scope
    labels: tuple[str, ...] = ()
    unit: str = ""
    """seconds, bytes or nothing."""
    about: str

    @property
    def described_as(self) -> str:
        """The name by which OpenMetrics and prometheus_client describe it; its samples have the whole one."""
        return self.name.removesuffix("_total").removesuffix("_info")


def _of(scope: Scope, *before: str) -> Callable[..., MetricFamily]:
    def make(name: str, kind: MetricType, about: str, *labels: str, unit: str = "") -> MetricFamily:
        labels = (*before, *labels)
        return MetricFamily(
            name=name, type=kind, scope=scope, labels=labels, unit=unit, about=about
        )

    return make


_rank, _host, _job = _of(Scope.RANK, "rank"), _of(Scope.HOST), _of(Scope.JOB)
_C, _G, _H, _I = MetricType.COUNTER, MetricType.GAUGE, MetricType.HISTOGRAM, MetricType.INFO

FAMILIES: Final = (
    # What the ranks do, by kind and group.
    _host("distdbg_ops_total", _C, "Ops that ended, as each rank counts its own calls: an all_reduce of 8 ranks is 8.", "kind", "group", "dtype"),
    _host("distdbg_op_bytes_total", _C, "Bytes of ops that ended well: what moved in or out of each rank, the larger of both.", "kind", "group", "dtype", unit="bytes"),
    _host("distdbg_op_failures_total", _C, "Ops that ended with an error.", "kind", "group"),
    _host("distdbg_bus_bytes_total", _C, "Bytes over the bus, as nccl-tests counts them, of all ranks.", "kind", "group", unit="bytes"),
    _host("distdbg_transfer_seconds_total", _C, "Time from when all ranks of an op had come until it ended; bus bytes per second of it are the bus bandwidth.", "kind", "group", unit="seconds"),
    _job("distdbg_op_duration_seconds", _H, "How long ops took, from the call to the end.", "kind", "group", unit="seconds"),
    _job("distdbg_op_late_arrival_seconds", _H, "How long ranks waited in an op until the last rank had come.", "kind", "group", unit="seconds"),
    # One rank each.
    _rank("distdbg_rank_up", _G, "1 while the process of the rank is alive, 0 after its end."),
    _rank("distdbg_rank_ops_in_flight", _G, "Ops that the rank has begun and not ended; while it moves without messages, which are send and recv."),
    _rank("distdbg_rank_since_progress_seconds", _G, "Time since the rank began or ended an op; 0 once it is over.", unit="seconds"),
    _rank("distdbg_rank_seq", _G, "The number of the collective that the rank called last on the group.", "group"),
    _rank("distdbg_rank_wait_seconds_total", _C, "Time in ops, by cause: late_peer until the last rank had come, transfer from then on. Ops beside each other count each; one that lasts counts too, once its rank stands still.", "cause", unit="seconds"),
    _rank("distdbg_rank_cpu_seconds_total", _C, "CPU time of the rank's process.", unit="seconds"),
    _rank("distdbg_rank_resident_memory_bytes", _G, "Memory of the rank's process that is in RAM.", unit="bytes"),
    # The health of the job.
    _host("distdbg_ranks", _G, "Ranks of this host by what they do.", "state"),
    _host("distdbg_dead_ranks", _G, "Ranks of this host that died or failed in this start of the job; not those that the launcher ended."),
    _host("distdbg_check_failures_total", _C, "Errors that the check raised, and what it suspected, by what was wrong.", "check"),
    _host("distdbg_recording_lost_total", _C, "What the records had no room for, by what it was.", "what"),
    _job("distdbg_findings", _G, "Findings of the diagnosis that hold now.", "kind"),
    _job("distdbg_findings_made_total", _C, "Findings that the diagnosis has made; one that lasts counts once.", "kind"),
    _job("distdbg_rank_blamed", _G, "1 for each rank that is the cause by the verdict that holds now; no sample for the others.", "rank", "kind", "site", "waiting"),
    _job("distdbg_restarts_total", _C, "How often the launcher has started the ranks again."),
    _job("distdbg_world_size", _G, "Ranks of the job."),
    _job("distdbg_clock_held", _G, "1 while the deadlines of the job stand, by a debugger or a pause."),
    # The agent itself.
    _host("distdbg_build_info", _I, "The version that serves this; always 1.", "version", "python"),
    _host("distdbg_agent_start_time_seconds", _G, "When the agent began, in seconds since 1970.", unit="seconds"),
    _host("distdbg_agent_cpu_seconds_total", _C, "CPU time of the agent.", unit="seconds"),
    _host("distdbg_agent_resident_memory_bytes", _G, "Memory of the agent that is in RAM.", unit="bytes"),
    _host("distdbg_agent_collect_seconds", _G, "How long it took to put these numbers together.", unit="seconds"),
    _host("distdbg_agent_series", _G, "Series that this agent serves."),
    _host("distdbg_agent_hosts_missing", _G, "Hosts of the job whose numbers of now are not in the sums for the job; only from its first host."),
    _host("distdbg_agent_spans_total", _C, "Spans by what became of them: sent, failed (not taken by the collector), dropped (the queue was full); and ops without spans: unsampled (by the sampler, or beyond the budget), missed (overwritten in the record before they were read).", "outcome"),
    _host("distdbg_agent_export_failures_total", _C, "Exports that did not arrive, by signal: traces, metrics, logs, push, textfile.", "signal"),
    _host("distdbg_agent_queue_length", _G, "What waits to be exported, by signal: traces, metrics, logs.", "signal"),
)  # fmt: skip

BY_NAME: Final = {family.name: family for family in FAMILIES}
