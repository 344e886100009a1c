"""The Job overview dashboard. Its first row: progress, dead ranks, and the rank that is the cause."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

from dashboards.generate.board import Row, board
from dashboards.generate.links import OVERVIEW_UID, TO_RANK, link, traces
from dashboards.generate.look import BLUE, GREEN, GREY, ORANGE, RED, STATES, steps, words
from dashboards.generate.panels import Column, lines, number, rows, words_of
from dashboards.generate.queries import (
    FINDINGS_MADE,
    LATE,
    STILL_S,
    STUCK_S,
    behind,
    column,
    lives,
    of,
    or_zero,
    range_query,
    with_host,
)
from dashboards.generate.why import ABSENT, COMES_LATE, GONE, WAITED_FOR, WHY

#: What no number of seconds says: nobody is left who could move.
OVER: Final = -1
TRACES_OF_FAILED: Final = (
    "Traces of this job's ops that failed",
    traces('{ resource.distdbg.run = "$run" && span.distdbg.role = "root" && status = error }'),
)
TRACES_OF_SLOW: Final = (
    "Traces of this job's slow ops",
    traces('{ resource.distdbg.run = "$run" && span.distdbg.role = "root" && duration > 100ms }'),
)
TRACES_OF_FINDING: Final = (
    "Traces of this finding",
    traces('{ resource.distdbg.run = "$run" && span.distdbg.finding = "${__value.raw}" }'),
)
TRACES_OF_FINDINGS: Final = (
    "Traces of all findings of this job",
    traces('{ resource.distdbg.run = "$run" && span.distdbg.role = "finding" }'),
)

ANALYZE: Final = """\
```sh
distdbg analyze $run
```

shows from the records what went wrong, which rank is the cause and at which line, also after the job has
ended; `--html report.html` writes a report. While the job runs, `distdbg ps $run` lists the ranks and their
states, `distdbg stacks $run` shows their stacks, and `distdbg top $run` shows the job live. Run them on a
host that has the run folder. See the page *Find out why it hung* of the documentation.
"""


def overview() -> Dashboard:
    return board(
        OVERVIEW_UID,
        "distdbg / Job overview",
        "Whether a job makes progress, which rank is the cause if it does not, and how much it does.",
        [
            Row(5, [*_numbers(), (10, _suspects())]),
            Row(7, [(12, _ranks_by_state()), (12, _since_progress())]),
            Row(7, [(8, _ops()), (8, _bytes()), (8, _where_time_goes())]),
            Row(8, [(12, _slowest()), (6, _findings()), (6, _check_failures())]),
            Row(6, [(12, _kinds_of_findings()), (12, _analyze())]),
        ],
    )


def _numbers() -> list[tuple[int, Panel]]:
    since = of("distdbg_rank_since_progress_seconds")
    over = f"{OVER} + 0 * max({of('distdbg_rank_up')})"
    moves = number(
        "Last progress",
        "How long ago any running rank began or ended an op: near zero in a job that makes progress.",
        "s",
        range_query(f"min({lives(since)}) or {over}", "ago"),
        thresholds=steps((0, GREEN), (STILL_S, ORANGE), (STUCK_S, RED), base=GREY),
        words=words({OVER: ("over", GREY)}),
        decimals=1,
    )
    alive = number(
        "Running ranks",
        "Ranks whose process is running, and all ranks of the job.",
        "none",
        range_query(f"sum({of('distdbg_rank_up')})", "running"),
        range_query(f"max({of('distdbg_world_size')})", "of"),
        thresholds=steps(base=BLUE),
        is_background=False,
    )
    dead = number(
        "Dead ranks",
        "Ranks that were killed or failed in this start of the job.",
        "none",
        range_query(f"sum({of('distdbg_dead_ranks')})", "dead"),
        thresholds=steps((1, RED)),
    )
    found = number(
        "Findings now",
        "Current findings of the diagnosis.",
        "none",
        range_query(or_zero(f"sum({of('distdbg_findings')})"), "findings"),
        thresholds=steps((1, ORANGE)),
        links=[link(TRACES_OF_FINDINGS)],
    )
    restarts = number(
        "Restarts",
        "How often the launcher has restarted the ranks.",
        "none",
        range_query(or_zero(f"max({of('distdbg_restarts_total')})"), "restarts"),
        thresholds=steps((1, ORANGE)),
    )
    clock = number(
        "Clock",
        "Whether a debugger or a pause holds the clock of the job: then no deadline passes.",
        "none",
        range_query(f"max({of('distdbg_clock_held')})", "clock"),
        thresholds=steps((1, ORANGE)),
        words=words({0: ("runs", GREEN), 1: ("held", ORANGE)}),
    )
    return [(3, moves), (3, alive), (2, dead), (2, found), (2, restarts), (2, clock)]


def _suspects() -> Panel:
    up = of("distdbg_rank_up")
    still = f"{of('distdbg_rank_since_progress_seconds')} > {STILL_S}"
    idle = f"{of('distdbg_rank_ops_in_flight')} == 0"
    late = of("distdbg:rank_late_share:costly")
    gone = f"{up} == 0 and on (run, host) {of('distdbg_dead_ranks')} > 0"
    lags = f"({behind()}) > 0"
    absent = f"{lags} and on (run, rank) {still} and on (run, rank) {idle}"
    # With a rank that dies the launcher ends the others: of those that are gone, who was behind comes first.
    reasons = (
        (WAITED_FOR, f"4 + 0 * max by (rank, host) ({gone} and on (run, rank) {lags})"),
        (GONE, f"3 + 0 * max by (rank, host) ({gone} unless on (run, rank) {lags})"),
        (ABSENT, f"2 + 0 * max by (rank, host) ({lives(absent)})"),
        (COMES_LATE, with_host(late)),
    )
    guesses = "\nor\n".join(f'label_replace({bad}, "why", "{why}", "", "")' for why, bad in reasons)
    # What the diagnosis says is better than what numbers let one guess.
    blamed = of("distdbg_rank_blamed")
    hosts = f"5 + 0 * max by (rank, host) ({up})"
    verdict = f"{blamed} * on (rank) group_left (host) ({hosts})"
    verdict = f'label_replace({verdict}, "why", "$1", "kind", "(.+)")'
    verdict = f"max by (rank, host, why, site, waiting) ({verdict})"
    said = f"{verdict}\nor\n((\n{guesses}\n) unless on () {blamed})"
    return rows(
        "Cause",
        "The rank that causes what is wrong, its function and line, and the ranks that wait for it; "
        "without a verdict, ranks that are gone, that others wait for, and that come late, the worst first.",
        [column(f"sort_desc(\n{said}\n)")],
        {
            "rank": Column(name="Rank", width=60, link=TO_RANK),
            "host": Column(name="Host", width=60),
            "site": Column(name="At", width=160),
            "waiting": Column(name="Waiting for it", width=100),
            "why": Column(name="Why", words=words(WHY)),
            "A": Column(name="How bad", is_shown=False),
        },
        no_value="nobody",
    )


def _ranks_by_state() -> Panel:
    return lines(
        "Ranks by what they do",
        "Ranks by state, as the agents see them from outside.",
        "suffix: ranks",
        range_query(f"sum by (state) ({of('distdbg_ranks')}) > 0", "{{state}}"),
        colors=STATES,
        is_stacked=True,
        decimals=0,
    )


def _since_progress() -> Panel:
    since = of("distdbg_rank_since_progress_seconds")
    return lines(
        "Time since progress",
        "Time since progress of the rank that waits longest, and of the last one to make progress.",
        "s",
        range_query(f"max({lives(since)})", "waiting longest"),
        range_query(f"min({lives(since)})", "last progress"),
        thresholds=steps((STILL_S, ORANGE), (STUCK_S, RED)),
        colors={"waiting longest": ORANGE, "last progress": BLUE},
    )


def _ops() -> Panel:
    return lines(
        "Ops",
        "Ops that ended per second, as each rank counts its own calls.",
        "ops",
        range_query(f"sum by (kind) ({of('distdbg:ops:rate')})", "{{kind}}"),
        links=[link(TRACES_OF_SLOW)],
    )


def _bytes() -> Panel:
    return lines(
        "Bytes",
        "Bytes per second that ops moved in or out of ranks.",
        "Bps",
        range_query(f"sum by (kind) ({of('distdbg:bytes:rate')})", "{{kind}}"),
        links=[link(TRACES_OF_SLOW)],
    )


def _where_time_goes() -> Panel:
    return lines(
        "Time in ops",
        "Mean share of time that ranks wait for late ranks, and that transfers take.",
        "percentunit",
        range_query(f"avg({of('distdbg:rank_late_peer:ratio')})", "waits for late ranks"),
        range_query(f"avg({of('distdbg:rank_transfer:ratio')})", "transfers"),
        colors={"waits for late ranks": ORANGE, "transfers": BLUE},
        is_stacked=True,
    )


def _slowest() -> Panel:
    return rows(
        "Slowest ranks",
        "All ranks, those with the largest share of late arrivals first.",
        [
            column(with_host(of("distdbg:rank_late_share:ratio"))),
            column(with_host(of("distdbg:rank_late_peer:ratio"))),
            column(f"max by (rank, host) ({of('distdbg_rank_since_progress_seconds')})"),
            column(f"max by (rank, host) ({behind()})"),
            column(f"max by (rank, host) ({of('distdbg_rank_up')})"),
        ],
        {
            "rank": Column(name="Rank", width=70, link=TO_RANK),
            "host": Column(name="Host"),
            "A": Column(
                name="Late",
                unit="percentunit",
                decimals=0,
                width=80,
                thresholds=steps((LATE, ORANGE), (0.8, RED)),
            ),
            "B": Column(name="Waits", unit="percentunit", decimals=0, width=80),
            "C": Column(
                name="Since progress",
                unit="s",
                decimals=1,
                width=130,
            ),
            "D": Column(name="Ops behind", unit="none", width=100, thresholds=steps((1, ORANGE))),
            "E": Column(name="Running", width=80, words=words({0: ("no", RED), 1: ("yes", GREEN)})),
        },
        sort_by="Late",
    )


def _findings() -> Panel:
    return lines(
        "Current findings",
        "Current findings of the diagnosis, by kind.",
        "suffix: findings",
        range_query(f"max by (kind) ({of('distdbg_findings')}) > 0", "{{kind}}"),
        is_stacked=True,
        decimals=0,
        no_value="none",
        links=[link(TRACES_OF_FINDINGS)],
    )


def _check_failures() -> Panel:
    return lines(
        "Check failures",
        "Errors and suspicions of the check since the agents started.",
        "suffix: failures",
        range_query(f"sum by (check) ({of('distdbg_check_failures_total')}) > 0", "{{check}}"),
        is_stacked=True,
        decimals=0,
        no_value="none",
        links=[link(TRACES_OF_FAILED)],
    )


def _kinds_of_findings() -> Panel:
    made = f"max by (kind) ({of(FINDINGS_MADE)}) > 0"
    return rows(
        "Findings by kind",
        "Findings, current and in total; a kind links to the traces of its ops.",
        [
            column(f"max by (kind) ({of('distdbg_findings')}) and on (kind) {made}"),
            column(made),
        ],
        {
            "kind": Column(name="Finding", link=TRACES_OF_FINDING),
            "A": Column(name="Now", unit="none", width=100, thresholds=steps((1, ORANGE))),
            "B": Column(name="Total", unit="none", width=100),
        },
        sort_by="Now",
    )


def _analyze() -> Panel:
    return words_of("What went wrong", "Commands that explain this job.", ANALYZE)
