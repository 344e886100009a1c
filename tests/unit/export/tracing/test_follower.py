"""Records followed live: what is kept of which ranks, what is missed, and that nothing is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distdbg.diagnose.finding import Finding, FindingKind, Severity
from distdbg.export.otel import attributes as names
from distdbg.export.otel.model import LogData, SpanData
from distdbg.export.otel.sampling import ALL, Sampler
from distdbg.export.tracing.records import HostRecords
from distdbg.export.tracing.trace_events import FindingMade, Made, OpsKept, RankEnded, SampledOp
from distdbg.hosts.tail_sampling import KeptOp
from distdbg.record.ends import RankEnd
from distdbg.record.format import Status
from tests.support.record_builder import RecordBuilder

S = 10**9
NOTHING = Sampler(0, True)
EVERYTHING = Sampler(ALL, True)


def killed(rank: int) -> RankEnd:
    return RankEnd(rank=rank, pid=1, host="n1", ended_ns=0, wall_ns=5 * S, cause="signal", signal=9)


class Host:
    """Two ranks whose records lie in a folder, and what is made of them."""

    def __init__(self, folder: Path, sampler: Sampler, *, ring_count: int = 16) -> None:
        self.folder = folder
        self.builds = [
            RecordBuilder(
                rank=rank,
                world_size=2,
                run="r",
                host="n1",
                ring_count=ring_count,
                strings_nbytes=2048,
                form_count=32,
                text_count=8,
            )
            for rank in range(2)
        ]
        self.groups = [
            b.add_group("dp", ranks="0-1", size=2, rank=b0) for b0, b in enumerate(self.builds)
        ]
        self.spans: list[SpanData] = []
        self.logs: list[LogData] = []
        self.sampled: list[SampledOp] = []
        self.now_ns = 0
        self.write()
        self.records = HostRecords(
            folder=folder,
            host="n1",
            run="r",
            start=0,
            sampler=sampler,
            slow_ns=S,
            spans_per_s=1000.0,
            now_ns=0,
        )

    def write(self) -> None:
        for rank, build in enumerate(self.builds):
            path = self.folder / f"rank{rank:05}.ddr"
            with path.open("r+b" if path.exists() else "wb") as file:  # the same file: it is live
                file.write(build.to_bytes())

    def look(self) -> list[SpanData]:
        self.write()
        self.now_ns += S
        self.records.look(self.now_ns)
        return self.take()

    def take(self) -> list[SpanData]:
        """The spans that were made; what else there is is kept."""
        made = self.records.take_made()
        self.logs += [log for _, log in made.logs]
        self.sampled += made.sampled
        spans = [span for _, span in made.spans]
        self.spans += spans
        return spans

    def keep(self, group: str, seq: int, why: str) -> None:
        self.records.hear(OpsKept([KeptOp(group, seq, why)]))

    def kill(self, rank: int) -> None:
        self.records.hear(RankEnded(killed(rank)))
        self.take()

    def call(self, rank: int, took_ns: int | None = 10, **more: int) -> int:
        build = self.builds[rank]
        number = build.issue("all_reduce", self.groups[rank], at_ns=1000, dtype="float32")
        if took_ns is not None:
            build.start(number, after_ns=took_ns)
            build.end(number, after_ns=took_ns, **more)
        return number


@pytest.fixture
def make_host(tmp_path: Path):
    made: list[Host] = []

    def make(sampler: Sampler, **more: int) -> Host:
        made.append(Host(tmp_path, sampler, **more))
        return made[-1]

    yield make
    for host in made:
        host.records.close()


def test_ops_of_all_ranks_become_spans_once_as_they_end(make_host) -> None:
    host = make_host(EVERYTHING)
    for rank in range(2):
        host.call(rank)
        host.call(rank)
    spans = host.look()
    assert len(spans) == 6
    assert len({span.trace_id for span in spans}) == 2
    assert len({span.span_id for span in spans}) == 6
    assert host.look() == []
    assert {one[:3] for one in host.sampled} == {("all_reduce", "dp", 10)}


def test_an_op_in_flight_waits_for_its_end(make_host) -> None:
    host = make_host(EVERYTHING)
    number = host.call(1, None)
    assert host.look() == []
    host.builds[1].end(number, after_ns=50)
    (span,) = host.look()
    assert span.ended_ns - span.began_ns == 50
    assert host.look() == []


def test_nothing_is_kept_of_what_is_not_sampled_and_it_is_counted(make_host) -> None:
    host = make_host(NOTHING)
    for _ in range(5):
        host.call(0)
    assert host.look() == []
    assert host.records.shared.unsampled == 5


def test_what_was_slow_on_one_rank_is_kept_of_the_other_rank_that_was_passed_before(
    make_host,
) -> None:
    host = make_host(NOTHING)
    host.call(0, 20)  # it came last, so it did not wait
    late = host.call(1, None)
    host.call(0, 20)
    assert host.look() == []
    host.builds[1].end(late, after_ns=2 * S)
    spans = host.look()
    assert {span.attributes[names.RANK] for span in spans} == {0, 1}
    assert {span.attributes[names.SEQ] for span in spans} == {1}
    assert {span.attributes[names.KEPT] for span in spans} == {"slow"}
    assert len(spans) == 3  # with the root
    assert host.look() == []


def test_what_failed_on_one_rank_is_kept_of_the_other_rank_that_comes_later(make_host) -> None:
    host = make_host(NOTHING)
    host.call(1, 20, status=int(Status.TIMEOUT), error="it took long")
    (span,) = host.look()
    assert span.attributes[names.ERROR_TYPE] == "OpTimeout"
    host.call(0)
    host.call(0)
    spans = host.look()
    assert [span.attributes[names.SEQ] for span in spans] == [1, 1]
    assert spans[0].span_id == span.parent_id


def test_what_is_found_is_kept(make_host) -> None:
    host = make_host(NOTHING)
    host.call(0)
    host.look()
    host.keep("1:dp", 1, "found")
    (root, span) = host.look()
    assert root.attributes[names.KEPT] == span.attributes[names.KEPT] == "found"


def test_what_was_overwritten_is_missed_and_counted_and_the_rest_is_right(make_host) -> None:
    host = make_host(EVERYTHING)
    for _ in range(100):
        host.call(0)
    spans = host.look()
    seqs = [span.attributes[names.SEQ] for span in spans if span.parent_id]
    assert seqs == list(range(100 - len(seqs) + 1, 101))
    assert host.records.shared.missed == 100 - len(seqs)


def test_a_ring_that_came_round_between_two_looks_gives_each_op_once(make_host) -> None:
    host = make_host(EVERYTHING, ring_count=128)
    seen: list[int] = []
    for _ in range(10):
        for _ in range(30):
            host.call(0)
        seen += [s.attributes[names.SEQ] for s in host.look() if s.parent_id]
    assert seen == list(range(1, 301))
    assert host.records.shared.missed == 0


def test_a_rank_that_is_gone_never_ended_what_it_was_in(make_host) -> None:
    host = make_host(NOTHING)
    host.call(1, None)
    host.look()
    host.kill(1)
    (span,) = host.spans
    assert span.error == "rank 1 was killed by SIGKILL"
    assert span.attributes[names.ERROR_TYPE] == "unended"
    assert span.ended_ns == 5 * S


def test_messages_of_both_ranks_meet_also_where_the_recv_is_from_any(make_host) -> None:
    host = make_host(EVERYTHING)
    sender, receiver = host.builds
    for seq in (1, 2):
        sender.end(sender.issue("send", 1, seq=seq, peer=1, tag=5), after_ns=9)
    receiver.end(receiver.issue("recv", 1, seq=1, peer=0, tag=5), after_ns=9)
    number = receiver.issue("recv", 1, seq=1, peer=-1, tag=5)
    host.look()
    receiver.end(number, after_ns=9, source=0)
    host.look()
    sends = {s.span_id: s for s in host.spans if s.name.startswith("send")}
    recvs = [s for s in host.spans if s.name.startswith("recv")]
    assert len(sends) == len(recvs) == 2
    assert {span.parent_id for span in recvs} == set(sends)


def test_the_program_s_own_span_is_the_parent_of_its_ops(make_host) -> None:
    host = make_host(NOTHING)
    build = host.builds[0]
    build.context(0xABC, 0xDEF)
    number = host.call(0)
    build.context(0, 0)
    host.call(0)
    (span,) = host.look()
    assert (span.trace_id, span.parent_id) == (0xABC, 0xDEF)
    assert span.attributes[names.NUMBER] == number
    assert host.records.shared.unsampled == 1


def test_errors_of_ranks_become_log_records_with_the_ids_of_their_op(make_host) -> None:
    host = make_host(EVERYTHING)
    facts = {"type": "OpTimeout", "what": "all_reduce #1 waited", "seq": 1, "group": "dp"}
    words = json.dumps(facts)
    host.call(0, 20, status=int(Status.TIMEOUT), error=words)
    root, span = host.look()
    (log,) = host.logs
    assert (log.trace_id, log.span_id) == (span.trace_id, span.span_id)
    assert log.body == "all_reduce #1 waited"
    assert root.error == span.error == log.body
    host.look()
    assert len(host.logs) == 1


def test_a_record_that_is_cut_short_is_forgotten_and_the_others_go_on(make_host) -> None:
    host = make_host(EVERYTHING)
    host.call(0)
    host.look()
    (host.folder / "rank00001.ddr").write_bytes(b"")
    host.builds[1:] = []
    host.call(0)
    assert len(host.look()) == 2


def test_after_what_was_missed_nobody_is_said_to_be_in_a_block_or_span(make_host) -> None:
    host = make_host(EVERYTHING)
    build = host.builds[0]
    begin = build.begin_span("step")
    build.context(0xABC, 0xDEF)
    host.call(0)
    before = host.look()
    assert before[0].attributes[names.REGION] == "step"
    assert 0xABC in {span.trace_id for span in before}
    for _ in range(40):
        host.call(0)
    build.end_span(begin, at_ns=9)
    *ops, block = host.look()
    assert not any(names.REGION in span.attributes for span in ops)
    assert 0xABC not in {span.trace_id for span in ops}
    assert (block.name, block.ended_ns - block.began_ns) == ("step", 9)


def test_what_has_failed_waits_for_its_words(make_host) -> None:
    host = make_host(NOTHING)
    build = host.builds[0]
    number = host.call(0, 20, status=int(Status.PEER_LOST))
    assert host.look() == []
    build.end(number, after_ns=20, status=int(Status.PEER_LOST), error='{"what": "rank 1 left"}')
    root, own = host.look()
    assert (root.error, own.error) == ("rank 1 left", "rank 1 left")
    assert host.look() == []


def test_what_never_gets_words_is_told_without_when_its_rank_ends_or_after_a_while(
    make_host,
) -> None:
    host = make_host(NOTHING)
    host.call(0, 20, status=int(Status.PEER_LOST))
    assert host.look() == []
    host.kill(0)
    assert [span.error for span in host.spans] == ["PeerLost", "PeerLost"]
    host.call(1, 20, status=int(Status.PEER_LOST))
    for _ in range(60):
        host.look()
    assert [span.error for span in host.spans] == ["PeerLost"] * 3


def test_a_slow_recv_has_its_send_though_that_was_soon_done_and_passed(make_host) -> None:
    host = make_host(NOTHING)
    sender, receiver = host.builds
    sent = sender.issue("send", host.groups[0], at_ns=3 * S, seq=1, peer=1)
    sender.start(sent, after_ns=5)
    sender.end(sent, after_ns=10)
    recv = receiver.issue("recv", host.groups[1], at_ns=1000, seq=1, peer=0)
    assert host.look() == []
    receiver.start(recv, after_ns=2 * S)
    receiver.end(recv, after_ns=2 * S)
    recv_span, send_span = sorted(host.look(), key=lambda span: span.name)
    assert recv_span.parent_id == send_span.span_id
    assert recv_span.attributes[names.KEPT] == send_span.attributes[names.KEPT] == "slow"
    assert host.records.take_unreported() == []  # no other host was in it


def test_only_what_has_ranks_elsewhere_is_told_to_other_hosts(make_host) -> None:
    host = make_host(NOTHING)
    wide = [b.add_group("all", ranks="0-3", size=4, rank=r) for r, b in enumerate(host.builds)]
    host.call(0, 2 * S)
    number = host.builds[0].issue("all_reduce", wide[0], at_ns=1000, dtype="float32")
    host.builds[0].start(number, after_ns=2 * S)
    host.builds[0].end(number, after_ns=2 * S)
    host.look()
    assert host.records.take_unreported() == [("2:all", 1, "slow")]
    host.keep("2:all", 2, "slow")
    assert host.records.take_unreported() == []


def test_what_another_host_keeps_is_kept_here_before_and_after_it_was_passed(make_host) -> None:
    host = make_host(NOTHING)
    host.call(0)
    assert host.look() == []
    host.keep("1:dp", 1, "slow")
    assert [span.name for span in host.look()] == ["all_reduce #1 on dp", "all_reduce rank 0"]
    host.call(1)
    assert [span.name for span in host.look()] == ["all_reduce rank 1"]


@pytest.mark.parametrize("sampler", [NOTHING, EVERYTHING])
def test_what_the_first_rank_never_came_to_has_a_root_all_the_same(make_host, sampler) -> None:
    host = make_host(sampler)
    host.call(1, 20, status=int(Status.TIMEOUT), error='{"what": "rank 0 did not come"}')
    (span,) = host.look()
    host.records.finish(host.now_ns, 2 * S)
    host.take()
    (root,) = host.spans[1:]
    assert (root.name, root.error) == ("all_reduce #1 on dp", "rank 0 did not come")
    assert root.span_id == span.parent_id


def test_what_the_first_rank_came_to_has_one_root(make_host) -> None:
    host = make_host(EVERYTHING)
    host.call(0)
    host.call(1, 20, status=int(Status.TIMEOUT), error='{"what": "it took long"}')
    host.call(0, None)
    host.call(1, 20, status=int(Status.TIMEOUT), error='{"what": "it took long"}')
    host.look()
    host.records.finish(host.now_ns, 2 * S)
    host.take()
    names_of = [span.name for span in host.spans]
    assert names_of.count("all_reduce #1 on dp") == names_of.count("all_reduce #2 on dp") == 1


def test_of_more_changes_than_a_look_takes_in_no_op_gets_a_span_that_it_was_not_in(
    make_host,
) -> None:
    host = make_host(EVERYTHING, ring_count=4096)
    build = host.builds[0]
    inside = set()
    for step in range(700):
        build.context(7, step + 1)
        inside.add(host.call(0))
        build.context(0, 0)
        host.call(0)
    spans = [span for span in host.look() if span.attributes[names.ROLE] == "caller"]
    assert 300 < len(spans) < 700
    assert {span.attributes[names.NUMBER] for span in spans} < inside


def test_the_same_records_and_events_make_the_same_again(make_host) -> None:
    host = make_host(NOTHING)
    host.call(0)
    host.call(0, 20, status=int(Status.TIMEOUT), error='{"what": "rank 1 did not come"}')
    host.call(1, None)
    host.write()
    finding = Finding(
        kind=FindingKind.STALL, severity=Severity.ERROR, what="rank 1 is slow", group="dp", seq=1
    )
    events = (
        OpsKept([KeptOp("1:dp", 1, "slow")]),
        FindingMade(finding, "1:dp", 1, 3 * S),
        RankEnded(killed(1)),
    )

    def replay() -> Made:
        records = HostRecords(
            folder=host.folder,
            host="n1",
            run="r",
            start=0,
            sampler=NOTHING,
            slow_ns=S,
            spans_per_s=1000.0,
            now_ns=0,
        )
        records.look(S)
        for event in events:
            records.hear(event)
        records.look(2 * S)
        records.close()
        return records.take_made()

    made = replay()
    assert replay() == made
    assert [log.body for _, log in made.logs] == [
        "rank 1 did not come",
        "rank 1 is slow",
        "rank 1 was killed by SIGKILL",
    ]
    assert {span.name for _, span in made.spans} == {
        "all_reduce #1 on dp",
        "all_reduce #2 on dp",
        "all_reduce rank 0",
        "all_reduce rank 1",
        "stall",
    }
