"""A run folder as a session: whatever is there comes out, and what is missing is said."""

from __future__ import annotations

import fcntl
import json
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from distdbg.diagnose.load.run_folder import group_runs, is_run, load_run, load_runs
from distdbg.diagnose.matching import match
from distdbg.diagnose.ops import IN_FLIGHT, NEVER, NONE, OTHER_KIND, OpRef
from distdbg.diagnose.session import Session
from distdbg.diagnose.verdict import diagnose
from distdbg.errors import RecordError, UsageError
from distdbg.record.ends import RankEnd, write_end
from distdbg.record.entries import MarkEntry, SpanBegin, SpanEnd
from distdbg.record.folders import record_name
from distdbg.record.format import OP, Aside, EventType, Exit, Flag, Section, Status, pack
from distdbg.record.observations import Observation, write_sighting
from distdbg.record.rank_state import RankState
from distdbg.record.rank_words import read_boot_id
from distdbg.record.stop_order import write_stop_order
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import STEP, build_short, build_wrapped


def new_record(rank: int, world_size: int = 4, **header: Any) -> tuple[RecordBuilder, int]:
    facts: dict[str, Any] = {"run": "made", "boot_id": "one", "wall_ns": 1_000, "monotonic_ns": 0}
    build = RecordBuilder(rank=rank, world_size=world_size, strings_nbytes=1024, **facts | header)
    group = build.add_group("world", ranks=f"0-{world_size - 1}", size=world_size, rank=rank)
    return build, group


def save(folder: Path, *builds: RecordBuilder) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for build in builds:
        data = build.to_bytes()
        rank = int.from_bytes(data[20:24], "little")
        (folder / record_name(rank)).write_bytes(data)


def save_job(folder: Path, ranks: range, world_size: int = 4, **header: Any) -> None:
    """Each rank has ended one op and is in the next."""
    for rank in ranks:
        build, group = new_record(rank, world_size, **header)
        number = build.issue("all_reduce", group, at_ns=100 + rank, stack=STEP, dtype="int8")
        build.start(number, after_ns=10)
        build.end(number, after_ns=20)
        build.issue("broadcast", group, at_ns=500, stack=STEP, dtype="int8", root=0)
        build.set_group(group, issued_seq=2, ended_seq=1)
        save(folder, build)


# ------------------------------------------------------------------------------------- the ranks


def test_ranks_share_groups_forms_and_stacks(tmp_path: Path) -> None:
    save_job(tmp_path, range(4))
    session = load_run(tmp_path)
    assert (session.run, session.world_size, session.is_live) == ("made", 4, False)
    assert [group.label for group in session.groups] == ["world"]
    assert session.groups[0].ranks == (0, 1, 2, 3)
    assert len(session.forms) == 3
    assert len(session.stacks) == 2
    assert not session.lacks
    assert match(session).of(0).at(2) == {rank: OpRef(rank, 1) for rank in range(4)}
    assert session.name_of(OpRef(3, 1)) == "broadcast #2 on group 'world'"
    assert str(session.site_of(OpRef(3, 0))) == "train.py:80 (step)"
    progress = session.ranks[2].progress[0]
    assert (progress.issued_seq, progress.ended_seq) == (2, 1)


def test_the_columns_have_what_the_record_has(tmp_path: Path) -> None:
    save(tmp_path, build_short())
    session = load_run(tmp_path)
    log = session.ranks[12]
    ops = log.ops
    assert [session.kind_of(OpRef(12, at)) for at in range(3)] == ["all_reduce", "recv", "barrier"]
    assert list(ops.number) == [2, 5, 7]
    assert list(ops.status) == [Status.OK, Status.PEER_LOST, IN_FLIGHT]
    assert list(ops.started_ns) == [1_100, NEVER, NEVER]
    assert list(ops.ended_ns) == [1_250, 1_580, NEVER]
    assert list(ops.source) == [NONE, 3, NONE]
    assert ops.tag[1] == 7
    assert ops.flags[1] == Flag.MESSAGE | Flag.ASYNC
    assert ops.fingerprint[0] == 0xFEED
    assert ops.errors == {1: '{"what": "PeerLost"}'}
    assert session.comms[ops.comm[0]] == "layer 3"
    assert session.forms[ops.form[0]].nbytes == 4096
    assert [type(note) for note in log.notes] == [SpanBegin, SpanEnd, MarkEntry]
    assert [found.what for found in log.found] == ["PeerLost", "order"]
    assert (log.exit, log.exit_ns) == (Exit.RAISED, 2_000)
    assert log.exit_what == "ValueError: 7 is not a colour"
    assert log.argv == ("train.py",)


def test_parked_ops_come_first_with_their_forms(tmp_path: Path) -> None:
    save(tmp_path, build_wrapped())
    log = load_run(tmp_path).ranks[0]
    assert list(log.ops.number) == [2, 8, *range(10, 18)]
    assert list(log.ops.in_flight()) == [0, 1]
    assert all(log.ops.form)
    assert log.lost == {"ops": 7}


def test_peers_are_global_ranks(tmp_path: Path) -> None:
    build, _ = new_record(5, 8)
    odd = build.add_group("odd", ranks="1,3,5,7", size=4, rank=2)
    build.issue("send", odd, peer=3, tag=1)
    received = build.issue("recv", odd, peer=-1)
    build.end(received, after_ns=5, source=0)
    save(tmp_path, build)
    ops = load_run(tmp_path).ranks[5].ops
    assert list(ops.peer) == [7, NONE]
    assert list(ops.source) == [NONE, 1]


def test_peers_of_a_group_without_members_stay_and_it_is_said(tmp_path: Path) -> None:
    build, _ = new_record(0, 2)
    group = build.add_group("cut", ranks="0,9", size=500, rank=0)
    build.issue("send", group, peer=4)
    save(tmp_path, build)
    session = load_run(tmp_path)
    assert list(session.ranks[0].ops.peer) == [4]
    assert "the members of group 'cut' cannot be read; its peers are group ranks" in session.lacks


def test_threads_that_wait_for_earlier_ops_are_there(tmp_path: Path) -> None:
    build, group = new_record(0)
    number = build.issue("all_reduce", group, is_async=True, at_ns=10)
    build.wait(number, since_ns=20, thread=7, stack=STEP)
    save(tmp_path, build)
    session = load_run(tmp_path)
    [wait] = session.ranks[0].work_waits
    assert (wait.number, wait.since_ns, wait.thread) == (number, 20, 7)
    assert str(session.stacks[wait.stack][0]) == "train.py:80 (step)"


def test_asides_and_kinds_of_later_versions_have_numbers(tmp_path: Path) -> None:
    build, group = new_record(0)
    form = build.add_form(b'{"name":"teleport","kind":"teleport"}')
    for kind in (Aside.NEW_GROUP, 77):
        build.write_event(EventType.OP, group=group, kind=kind, form=form, flags=Flag.ASIDE)
    save(tmp_path, build)
    session = load_run(tmp_path)
    assert list(session.ranks[0].ops.kind) == [Aside.NEW_GROUP, OTHER_KIND]
    assert session.kind_of(OpRef(0, 1)) == "teleport"


def test_an_error_and_the_finding_about_it_are_told_once(tmp_path: Path) -> None:
    text = json.dumps(
        {"type": "OpTimeout", "what": "waited", "kind": "all_reduce", "seq": 3, "group": "dp",
         "ranks": [1], "details": ["rank 1 is alive"], "hint": "wait"}
    )  # fmt: skip
    build, group = new_record(0)
    number = build.issue("all_reduce", group, at_ns=10)
    build.end(number, after_ns=5, status=Status.TIMEOUT, error=text)
    build.find(text, group, at_ns=15)
    save(tmp_path, build)
    [found] = load_run(tmp_path).ranks[0].found
    assert (found.type, found.what, found.kind, found.seq) == (
        "OpTimeout",
        "waited",
        "all_reduce",
        3,
    )
    assert (found.group, found.ranks, found.at_ns) == ("dp", (1,), 15)
    assert (found.details, found.hint) == (("rank 1 is alive",), "wait")


def test_a_group_that_is_made_again_is_another_one(tmp_path: Path) -> None:
    for rank in range(2):
        build = RecordBuilder(rank=rank, world_size=2, run="made", boot_id="one")
        again = build.add_string("again")
        for number in (1, 2):
            group = build.add_group("world", ranks="0-1", size=2, rank=rank)
            place = build.offset_of(Section.GROUPS, group)
            rename(build, place, again)
            build.set_group(group, closed_ns=number)
        save(tmp_path, build)
    session = load_run(tmp_path)
    assert [group.name for group in session.groups] == ["again", "again~2"]
    assert set(session.ranks[1].progress) == {0, 1}


def rename(build: RecordBuilder, place: int, name: int) -> None:
    """Give a group another name, with a check that fits."""
    data = bytearray(build.to_bytes()[place : place + 64])
    data[16:20] = name.to_bytes(4, "little")
    check = int.from_bytes(data[:56], "little") % (2**64 - 1)
    build._store(place + 16, bytes(data[16:24]))
    build._store(place + 56, check.to_bytes(8, "little"))


def test_groups_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    for rank, ranks in ((0, "0-1"), (2, "2-3")):
        build = RecordBuilder(rank=rank, world_size=4, run="made", boot_id="one")
        build.add_group("tp", ranks=ranks, size=2)
        save(tmp_path, build)
    session = load_run(tmp_path)
    assert [group.ranks for group in session.groups] == [(0, 1), (2, 3)]


# -------------------------------------------------------------------------------------- witnesses


def test_how_ranks_ended_is_read_from_whoever_saw_it(tmp_path: Path) -> None:
    save_job(tmp_path, range(3), pid=50)
    common: dict[str, Any] = {"host": "n14", "ended_ns": 900, "wall_ns": 1_900}
    write_end(tmp_path, RankEnd(rank=1, pid=50, cause="unknown", by="agent", **common))
    write_end(tmp_path, RankEnd(rank=1, pid=50, cause="signal", signal=9, **common))
    write_end(tmp_path, RankEnd(rank=2, pid=49, cause="exited", exit_code=3, **common))
    write_end(tmp_path, RankEnd(rank=3, pid=51, cause="exited", exit_code=1, **common))
    session = load_run(tmp_path)
    assert session.ranks[0].end is None
    assert (end := session.ranks[1].end) is not None
    assert end.how == "was killed by SIGKILL"
    assert (end := session.ranks[2].end) is not None
    assert end.exit_code == 3
    assert session.ranks[3].is_gone
    assert len(session.ranks[3].ops) == 0
    assert session.time_ns(3, 900) == 1_900
    assert session.lacks == ["rank 3 left no record; only how it ended is known"]


def test_who_ordered_the_end_of_a_run_is_read_for_its_last_start(tmp_path: Path) -> None:
    for attempt in range(2):
        save_job(tmp_path / f"attempt_{attempt}", range(2))
    write_stop_order(tmp_path, "anna")
    assert load_run(tmp_path).stopped_by == "anna"
    assert load_run(tmp_path, attempt=0).stopped_by == ""


def test_the_last_that_an_agent_saw_counts(tmp_path: Path) -> None:
    save_job(tmp_path, range(2), pid=50)
    for pid, state in ((50, RankState.RUNNING), (50, RankState.STOPPED), (9, RankState.BUSY)):
        stack = (("a.py", 3, "f"),)
        seen = Observation(rank=1, pid=pid, host="n14", state=state, since_ns=7, stack=stack)
        write_sighting(tmp_path, seen)
    session = load_run(tmp_path)
    activity = session.ranks[1].activity
    assert activity is not None
    assert activity.state is RankState.STOPPED
    assert str(activity.stack[0]) == "a.py:3 (f)"
    assert session.ranks[0].activity is None


@pytest.mark.parametrize("line", [b"", b"null\n", b'{"rank": "x"}\n', b'{"rank":1}\n', b"\xff{\n"])
def test_lines_that_nobody_of_ours_wrote_are_passed_over(tmp_path: Path, line: bytes) -> None:
    save_job(tmp_path, range(2))
    whole = {"rank": [], "pid": {}, "host": 3, "ended_ns": "x", "wall_ns": None, "cause": 4}
    text = line + json.dumps(whole).encode() + b"\n"
    (tmp_path / "ends-n14.jsonl").write_bytes(text)
    (tmp_path / "seen-n14.jsonl").write_bytes(text)
    assert set(load_run(tmp_path).ranks) == {0, 1}


def test_a_rank_that_lives_here_has_threads_and_the_time_is_now(tmp_path: Path) -> None:
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    now_ns = time.monotonic_ns()
    build, group = new_record(
        0, 1, boot_id=read_boot_id(), pid=os.getpid(), process_start=started,
        wall_ns=5_000, monotonic_ns=now_ns,
    )  # fmt: skip
    build.issue("barrier", group, at_ns=now_ns)
    save(tmp_path, build)
    fd = os.open(tmp_path / record_name(0), os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # as a writer has it
        session = load_run(tmp_path)
    finally:
        os.close(fd)
    assert session.is_live
    assert session.ranks[0].threads is not None
    assert threading.get_native_id() in session.ranks[0].threads
    assert session.now_ns > 5_000
    session = load_run(tmp_path)
    assert (session.is_live, session.now_ns) == (False, 5_000)
    assert session.ranks[0].threads is None


# ------------------------------------------------------------------------------------------ clocks


def test_ranks_of_one_machine_share_the_clock_of_the_first(tmp_path: Path) -> None:
    save_job(tmp_path, range(1), wall_ns=1_000, monotonic_ns=100)
    save_job(tmp_path, range(1, 2), wall_ns=2_070, monotonic_ns=1_100)
    session = load_run(tmp_path)
    assert session.time_ns(0, 100) == 1_000
    assert session.time_ns(1, 1_100) == 2_000
    assert session.ranks[1].clock_error_ns == 0
    assert session.now_ns == session.time_ns(1, 1_100)


def test_what_agents_estimated_puts_hosts_on_one_clock(tmp_path: Path) -> None:
    clocks = {0: ("a", 100, 0, 1), 1: ("b", 50_100, -50_000, 30), 2: ("c", 9, 0, 0)}
    for rank, (boot_id, now_ns, offset_ns, error_ns) in clocks.items():
        build, group = new_record(
            rank, 3, boot_id=boot_id, wall_ns=1_000 + rank, monotonic_ns=now_ns
        )
        build.issue("barrier", group, at_ns=now_ns)
        build.set_state(clock_offset_ns=offset_ns, clock_error_ns=error_ns)
        save(tmp_path, build)
    session = load_run(tmp_path)
    assert [session.time_ns(rank, clocks[rank][1]) for rank in range(3)] == [1_000, 1_000, 1_002]
    assert [log.clock_error_ns for log in session.ranks.values()] == [0, 31, None]
    assert any("were not compared with that of the first host" in line for line in session.lacks)


# ----------------------------------------------------------------------------- what may be missing


def test_missing_and_unreadable_ranks_are_said(tmp_path: Path) -> None:
    save_job(tmp_path, range(2), 4)
    (tmp_path / record_name(2)).write_bytes(b"no record")
    session = load_run(tmp_path)
    assert set(session.ranks) == {0, 1}
    assert any("is not a record of distdbg" in line for line in session.lacks)
    assert "nothing is known of ranks 2-3 of 4" in session.lacks


def test_a_damaged_entry_is_counted_and_the_rest_is_there(tmp_path: Path) -> None:
    build, group = new_record(0, 1)
    for _ in range(4):
        build.end(build.issue("barrier", group), after_ns=1)
    data = bytearray(build.to_bytes())
    data[build.offset_of(Section.RING, 2) + OP["seq"].offset] ^= 4
    tmp_path.joinpath(record_name(0)).write_bytes(data)
    session = load_run(tmp_path)
    assert list(session.ranks[0].ops.seq) == [1, 3, 4]
    assert session.ranks[0].lost == {"gaps": 1}
    assert session.lacks == ["1 place in the records of rank 0 cannot be read"]


def test_the_end_of_an_op_counts_though_its_time_is_damaged(tmp_path: Path) -> None:
    build, group = new_record(0, 1)
    number = build.issue("barrier", group)
    build.end(number, after_ns=5)
    data = bytearray(build.to_bytes())
    place = build.offset_of(Section.RING, number)
    data[place + OP["ended"].offset] ^= 1
    data[place + OP["outcome"].offset] = pack(9) & 0xFF
    tmp_path.joinpath(record_name(0)).write_bytes(data)
    ops = load_run(tmp_path).ranks[0].ops
    assert ops.ended_ns[0] == NEVER
    assert ops.status[0] != IN_FLIGHT


@pytest.mark.parametrize("build", [build_short, build_wrapped])
def test_no_damage_raises_anything_but_a_record_error(
    tmp_path: Path, build: Callable[[], RecordBuilder]
) -> None:
    whole = build().to_bytes()
    path = tmp_path / record_name(0)
    chosen = random.Random(3)
    used = [offset for offset, byte in enumerate(whole) if byte]
    for turn in range(120):
        data = bytearray(whole)
        if turn % 3 == 0:
            del data[chosen.randrange(len(data)) :]
        else:
            for _ in range(turn % 5 + 1):
                data[chosen.choice(used)] = chosen.randrange(256)
        path.write_bytes(data)
        try:
            session = load_run(tmp_path)
        except RecordError:
            continue
        match(session)
        for log in session.ranks.values():
            for at in range(len(log.ops)):
                session.name_of(OpRef(log.rank, at))
                session.site_of(OpRef(log.rank, at))


# ------------------------------------------------------------------------------------ which folder


def test_the_last_start_with_records_is_read_unless_told_otherwise(tmp_path: Path) -> None:
    save_job(tmp_path / "attempt_0", range(2), 2)
    save_job(tmp_path / "attempt_1", range(3), 3)
    (tmp_path / "attempt_2").mkdir()
    assert is_run(tmp_path)
    session = load_run(tmp_path)
    assert (session.attempt, session.attempts, session.world_size) == (1, 3, 3)
    session = load_run(tmp_path, attempt=0)
    assert (session.attempt, session.world_size) == (0, 2)
    session = load_run(tmp_path / "attempt_0")
    assert (session.attempt, session.attempts, session.world_size) == (0, 3, 2)
    with pytest.raises(UsageError, match="no start number 7"):
        load_run(tmp_path, attempt=7)


def test_a_link_and_a_single_record_will_do(tmp_path: Path) -> None:
    save_job(tmp_path / "20261121", range(2), 2)
    (tmp_path / "latest").symlink_to("20261121")
    assert set(load_run(tmp_path / "latest").ranks) == {0, 1}
    record = tmp_path / "20261121" / record_name(1)
    assert is_run(record)
    session = load_run(record)
    assert set(session.ranks) == {1}
    assert "nothing is known of rank 0 of 2" in session.lacks


def test_folders_of_several_hosts_are_one_session(tmp_path: Path) -> None:
    save_job(tmp_path / "a", range(2), 4, host="a", boot_id="a")
    save_job(tmp_path / "b", range(2, 4), 4, host="b", boot_id="b")
    session = load_runs([tmp_path / "a", tmp_path / "b", tmp_path / "a"])
    assert set(session.ranks) == {0, 1, 2, 3}
    assert len(session.groups) == 1
    assert not any("twice" in line for line in session.lacks)


def test_what_belongs_to_one_start_is_told_from_the_rest(tmp_path: Path) -> None:
    save_job(tmp_path / "a", range(2), 4, host="a", boot_id="a")
    save_job(tmp_path / "b", range(2, 4), 4, host="b", boot_id="b")
    save_job(tmp_path / "c", range(2), 2, run="other")
    save_job(tmp_path / "d" / "attempt_0", range(1), 1, run="again")
    save_job(tmp_path / "d" / "attempt_1", range(1), 1, run="again")
    starts = [tmp_path / "d" / "attempt_0", tmp_path / "d" / "attempt_1"]
    groups = group_runs([tmp_path / "a", tmp_path / "c", tmp_path / "b", *starts])
    sessions = [load_runs(group) for group in groups]
    assert [(s.run, s.attempt, len(s.ranks)) for s in sessions] == [
        ("made", 0, 4), ("other", 0, 2), ("again", 0, 1), ("again", 1, 1),
    ]  # fmt: skip
    records = [tmp_path / name / record_name(rank) for name, rank in (("a", 1), ("b", 3))]
    assert group_runs(records) == [records]


def test_of_two_records_of_a_rank_the_newer_is_read(tmp_path: Path) -> None:
    save_job(tmp_path / "a", range(2), 2, wall_ns=5)
    save_job(tmp_path / "b", range(1), 2, wall_ns=9)
    for order in (["a", "b"], ["b", "a"]):
        session = load_runs([tmp_path / name for name in order])
        assert session.ranks[0].source.startswith(str(tmp_path / "b"))
        assert any("rank 0 has two records" in line for line in session.lacks)


def test_records_of_another_run_are_left_out(tmp_path: Path) -> None:
    save_job(tmp_path, range(1), 2, run="old", wall_ns=5)
    save_job(tmp_path, range(1, 2), 2, run="new", wall_ns=9)
    session = load_run(tmp_path)
    assert (session.run, set(session.ranks)) == ("new", {1})
    assert "rank 0 of run old left out: this is run new" in session.lacks


@pytest.mark.parametrize("what", ["nothing", "empty", "text", "other"])
def test_what_is_no_run_is_told_by_an_error(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if what == "empty":
        path.mkdir()
    elif what == "text":
        path.write_text("hello")
    elif what == "other":
        os.mkfifo(path)
    assert not is_run(path)
    with pytest.raises(RecordError):
        load_run(path)


def test_an_end_alone_makes_a_session(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"host": "n14", "ended_ns": 900, "wall_ns": 1_900, "cause": "exited"}
    write_end(tmp_path, RankEnd(rank=0, pid=5, exit_code=1, **facts))
    session: Session = load_run(tmp_path)
    assert session.ranks[0].is_gone
    assert session.now_ns == 1_900


@pytest.mark.parametrize("left", ["", "rank00000.ddr", "control-n14"])
def test_a_job_that_ended_well_and_never_joined_has_no_fault(tmp_path: Path, left: str) -> None:
    facts: dict[str, Any] = {"host": "n14", "ended_ns": 900, "wall_ns": 1_900, "cause": "exited"}
    for rank in range(2):
        write_end(tmp_path, RankEnd(rank=rank, pid=5 + rank, exit_code=0, **facts))
    if left:  # what ranks leave that have joined: their records are lost
        (tmp_path / left).write_bytes(b"")
    verdict = diagnose(load_run(tmp_path))
    assert verdict.has_faults == bool(left)
    if not left:
        assert verdict.what == "ranks 0-1 ended with code 0 and left no record: no op is known"


def test_pipes_in_the_place_of_what_others_wrote_are_not_waited_for(tmp_path: Path) -> None:
    save_job(tmp_path, range(2), 2)
    os.mkfifo(tmp_path / "ends-n1.jsonl")
    os.mkfifo(tmp_path / "seen-n1.jsonl")
    done: list[Session] = []
    reader = threading.Thread(target=lambda: done.append(load_run(tmp_path)), daemon=True)
    reader.start()
    reader.join(30)
    assert [sorted(session.ranks) for session in done] == [[0, 1]]
