"""A job with something in every view: rank 3 loads data, others wait for it, rank 6 is in the debugger."""

from typing import Any

from distdbg.diagnose.finding import (
    Edge,
    Evidence,
    Finding,
    FindingKind,
    Role,
    Severity,
    Verdict,
)
from distdbg.record.rank_state import RankState
from distdbg.view.snapshot import (
    ArmedBreakpoint,
    Arrival,
    Bar,
    GroupRow,
    HostRow,
    LogRow,
    OpDetail,
    OpKey,
    OpRow,
    RankDetail,
    Snapshot,
    StackGroup,
    Stacks,
    StoppedAtPrompt,
    WaitRow,
)
from tests.tui.made_up import NOW, MadeUpFeed, job, row

OP = "all_reduce #42 on group 'world'"
STEP = "train.py:88 (step)"
LOADER = "dataloader.py:210 (__next__)"
WAITERS = (0, 1, 2, 4, 5)


def edge(rank: int, *on: int, text: str = OP, site: str = STEP) -> Edge:
    """One rank waits."""
    return Edge(rank=rank, on=on, text=text, site=site)


def finding(kind: FindingKind, severity: Severity, what: str, **more: Any) -> Finding:
    """One finding."""
    return Finding(kind=kind, severity=severity, what=what, **more)


def verdict(*findings: Finding, root: int | None = 0, **roles: Role) -> Verdict:
    """A verdict about these; `roles` are 'rank3=Role.ROOT'."""
    cause = findings[root] if root is not None else None
    return Verdict(
        what=cause.what if cause is not None else "",
        root=cause,
        findings=findings,
        roles={int(name[4:]): role for name, role in roles.items()},
    )


MISSING = finding(
    FindingKind.MISSING_RANK, Severity.ERROR,
    "5 ranks wait in all_reduce #42 on group 'world' for rank 3, which never called it",
    ranks=(3,), victims=WAITERS, group="world", seq=42,
    evidence=(
        Evidence(text="rank 3 is alive: last op all_reduce #41, since then in its own code",
                 rank=3, site=LOADER),
        Evidence(text="ranks 0-2,4,5 called all_reduce #42", ranks=WAITERS, site=STEP),
    ),
    edges=tuple(edge(rank, 3) for rank in WAITERS),
    advice="distdbg dump --rank 3 shows all its threads; is its shard longer than the others'?",
    numbers={"waited_s": 31.2},
)  # fmt: skip
STRAGGLER = finding(
    FindingKind.STRAGGLER, Severity.WARNING, "rank 5 comes last in 61 % of the ops on group 'dp', 12 ms late",
    ranks=(5,), group="dp", evidence=(Evidence(text="rank 5: late in 240 of 400 ops", rank=5),),
    numbers={"late_s": 0.012, "times": 240},
)  # fmt: skip
LEAK = finding(
    FindingKind.LEAKED_WORK, Severity.NOTE, "3 works of rank 2 were never waited for", ranks=(2,),
    evidence=(Evidence(text="isend to rank 3 on group 'world'", rank=2, site="train.py:120 (push)"),),
    advice="call wait() on what isend returns",
)  # fmt: skip


def snapshot() -> Snapshot:
    """Eight ranks on two hosts."""
    rows = [
        row(
            rank,
            RankState.WAITING,
            host="n14" if rank < 4 else "n15",
            state_at=NOW - 31.2,
            moved_at=NOW - 31.2,
            seqs=(("world", 42), ("dp", 20 if rank % 2 else 21)),
        )
        for rank in range(8)
    ]
    rows[3] = row(3, RankState.RUNNING, op="", site=LOADER, seqs=(("world", 41), ("dp", 20)))
    rows[6] = row(
        6, RankState.DEBUGGED, host="n15", op="", why="breakpoint", site="train.py:90 (step)"
    )
    rows[7] = row(7, RankState.DEAD, host="n15", op="", why="was killed by SIGKILL", site="")
    issued = dict.fromkeys(WAITERS, 42) | {3: 41, 6: 41, 7: 40}
    return job(
        *rows,
        hosts=(HostRow(host="n14"), HostRow(host="n15", is_lost=True)),
        groups=(
            GroupRow(
                name="world", label="world", ranks=tuple(range(8)), backend="shm",
                timeout_s=1800.0, issued=issued, ended={r: min(s, 41) for r, s in issued.items()},
                broken={7: "rank 7 died"},
            ),
            GroupRow(
                name="dp:1", label="dp", ranks=(1, 3, 5, 7), issued=dict.fromkeys((1, 3, 5, 7), 20),
                ended=dict.fromkeys((1, 3, 5, 7), 20),
            ),
        ),
        ops=(
            OpRow(
                group="world", kind="all_reduce", count=332, failed=1, nbytes=332 << 20,
                p50_s=0.00081, p99_s=0.0123, wait_p50_s=0.0002, wait_p99_s=0.011,
                bus_nbytes_per_s=3.1e9, late=((5, 0.61), (3, 0.12), (0, 0.05)),
            ),
            OpRow(group="dp:1", kind="all_gather", count=80, nbytes=80 << 16, p50_s=0.0001,
                  p99_s=0.0003),
        ),
        waits=tuple(
            WaitRow(rank=rank, on=(3,), op=OP, site=STEP, since=NOW - 31.2) for rank in WAITERS
        ),
        lines=(
            "5 ranks wait in all_reduce #42 on group 'world' for rank 3, which never called it",
            f"  rank 3 is alive: last op all_reduce #41, since then in {LOADER}",
            f"  ranks 0-2,4,5 wait in {OP}, since 31 s",
            "  hint: distdbg dump --rank 3 shows all its threads",
        ),
        verdict=verdict(
            LEAK, MISSING, STRAGGLER, root=1, rank3=Role.ROOT,
            **{f"rank{rank}": Role.VICTIM for rank in WAITERS}, rank6=Role.BYSTANDER,
        ),
        armed=(ArmedBreakpoint(id=1, rule="rank=6,kind=all_reduce"), ArmedBreakpoint(id=2, rule="on=nan")),
        stopped=(StoppedAtPrompt(rank=6, host="n15", why="before all_reduce #42 on group 'world'",
                         site="train.py:90 (step)", at=NOW - 12),),
        held_by=("rank 6",),
    )  # fmt: skip


def bar(number: int, seq: int, **more: Any) -> Bar:
    """An op of a rank."""
    usual: dict[str, Any] = {
        "number": number, "kind": "all_reduce", "name": f"all_reduce #{seq}", "group": "world",
        "seq": seq, "issued": NOW - 32, "started": NOW - 31.99, "ended": NOW - 31.98,
    }  # fmt: skip
    return Bar(**(usual | more))


def op_detail() -> OpDetail:
    """All_reduce #42: rank 4 came late and with another shape, rank 3 did not."""
    came = [
        Arrival(
            rank=rank, has_come=True, issued=NOW - 31.2 + (0.0123 if rank == 4 else rank * 2e-5),
            status="in flight", form="float32[1023], sum" if rank == 4 else "float32[1024], sum",
            site=STEP, stack=("train.py:88 (step)", "train.py:140 (main)", "train.py:151 (<module>)"),
        )
        for rank in WAITERS
    ]  # fmt: skip
    missing = [Arrival(rank=rank, has_come=False) for rank in (3, 6, 7)]
    return OpDetail(
        name=OP, arrivals=tuple(sorted([*came, *missing], key=lambda one: one.rank)),
        says=("float32[1024] on ranks 0-2,5, float32[1023] on rank 4",),
    )  # fmt: skip


def feed() -> MadeUpFeed:
    """The job, with all that can be asked about it."""
    made = MadeUpFeed(snapshot())
    made.address = "/run/user/1000/distdbg/agent.sock"
    one = made.snapshot.ranks[0]
    made.details[0] = RankDetail(
        row=one,
        facts=(("argv", "train.py --lr 3e-4 --batch 32"), ("level", "detail")),
        in_flight=(bar(84, 42, issued=NOW - 31.2, started=None, ended=None),),
        history=tuple(bar(83 - i, 41 - i, has_failed=i == 2) for i in range(6)),
        stack=("train.py:88 (step)", "train.py:140 (main)", "train.py:151 (<module>)"),
    )
    made.ops[OpKey(group="world", seq=42)] = op_detail()
    made.ops[OpKey(rank=0, number=84)] = op_detail()
    step = ("wait (distdbg/runtime/groups/group.py:310)", "step (train.py:88)", "main (train.py:140)",
            "<module> (train.py:151)")  # fmt: skip
    made.all_stacks = Stacks(
        groups=(
            StackGroup(ranks=WAITERS, thread="MainThread", frames=step),
            StackGroup(ranks=(3,), thread="MainThread", holds_gil=True,
                       frames=("read (gzip.py:301)", "__next__ (dataloader.py:210)",
                               *(f"layer{i} (model.py:{i})" for i in range(12)),
                               "main (train.py:139)")),
            StackGroup(ranks=WAITERS, thread="pin_memory", frames=("wait (threading.py:320)",),
                       is_main=False),
        ),
        failed={6: "it is in the debugger", 7: "it is dead"}, how="py-spy", at=NOW - 2,
    )  # fmt: skip
    made.lines = [
        LogRow(
            at=NOW - 60 + i, ranks=tuple(range(8)), stream="out", text=f"step {i} loss 0.{90 - i}"
        )
        for i in range(40)
    ]
    made.lines += [
        LogRow(
            at=NOW - 10, ranks=(3,), stream="err", text="WARNING: shard 17 is slow: " + "x" * 200
        ),
        LogRow(at=NOW - 3, ranks=(7,), stream="err", text="Killed"),
    ]
    return made
