"""The messages that jobs print, as they print them, and what each is understood to say."""

from __future__ import annotations

import pytest

from distdbg.diagnose.finding import FindingKind
from tests.unit.diagnose.load.read_logs import GLOO, ReadLog, only

FINGERPRINT_0 = (
    "CollectiveFingerPrint(SequenceNumber=3, OpType=ALLREDUCE, TensorShape=[4], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), "
    "requires_grad=false (default), pinned_memory=false (default), memory_format=(nullopt)))"
)
MISMATCH = "Detected mismatch between collectives on ranks. Rank {} is running collective: {}, but Rank {} is running collective: {}.Collectives differ in the following aspects: "  # noqa: E501


def test_a_mismatch_names_what_each_rank_says_of_itself(read: ReadLog) -> None:
    made_up = "CollectiveFingerPrint(SequenceNumber=0OpType=SCATTER)"
    found = only(read(f"[rank0]: RuntimeError: {MISMATCH.format(0, FINGERPRINT_0, 1, made_up)}"))
    assert found.kind is FindingKind.MISMATCH
    assert "scatter" not in found.what.lower()
    assert "an op on an array of 2 dimensions on rank 1" in found.what
    assert "all_reduce of float[4] on rank 0" in found.what
    assert found.seq == 3


@pytest.mark.parametrize(
    ("op", "what"),
    [
        ("REDUCE", "an op without an array, such as a barrier"),
        ("ALLGATHER_COALESCED", "an op on an array of 0 dimensions"),
        ("GATHER", "an op on an array of 1 dimensions"),
        ("REDUCE_SCATTER", "an op on an array of 3 dimensions"),
    ],
)
def test_a_made_up_op_is_read_back_to_what_is_known(read: ReadLog, op: str, what: str) -> None:
    text = MISMATCH.format(
        0, FINGERPRINT_0, 1, f"CollectiveFingerPrint(SequenceNumber=0OpType={op})"
    )
    assert any(what in e.text for e in only(read(text)).evidence)


def test_the_majority_decides_whose_op_is_odd(read: ReadLog) -> None:
    barrier = "CollectiveFingerPrint(SequenceNumber=3OpType=BARRIER)"
    made_up = "CollectiveFingerPrint(SequenceNumber=0OpType=REDUCE)"
    other = "CollectiveFingerPrint(SequenceNumber=0OpType=GATHER)"
    found = only(
        read(
            "\n".join(
                (
                    f"[rank0]: RuntimeError: {MISMATCH.format(0, FINGERPRINT_0, 1, made_up)}",
                    f"[rank2]: RuntimeError: {MISMATCH.format(2, FINGERPRINT_0, 1, made_up)}",
                    f"[rank1]: RuntimeError: {MISMATCH.format(1, barrier, 0, other)}",
                )
            )
        )
    )
    assert found.ranks == (1,)
    assert "barrier on rank 1" in found.what
    assert "all_reduce of float[4] on ranks 0,2" in found.what


def test_the_barrier_before_a_checked_op_only_follows(read: ReadLog) -> None:
    found = only(
        read(
            "ProcessGroupWrapper: Monitored Barrier encountered error running collective: "
            f"{FINGERPRINT_0}. Error: "
        )
    )
    assert found.kind is FindingKind.FAILED_OP
    assert found.ranks == ()


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("Rank 1 failed", (1,)),
        ("Ranks 1, 2 failed", (1, 2)),
        ("Ranks 4,5,6,7 failed", (4, 5, 6, 7)),
    ],
)
def test_ranks_that_fail_a_monitored_barrier_are_missing(
    read: ReadLog, text: str, ranks: tuple[int, ...]
) -> None:
    found = only(
        read(
            "[rank0]:[E1120 23:54:44.793142038 ProcessGroupGloo.cpp:2901] "
            f"[Rank 0]: {text} to pass monitoredBarrier in 8000 ms"
        )
    )
    assert found.kind is FindingKind.MISSING_RANK
    assert found.ranks == ranks
    assert found.victims == (0,)
    assert found.at_ns is not None
    assert found.evidence[0].source == "job.log:1"


REACHED = (
    "Rank {} successfully reached monitoredBarrier, but received errors while waiting for send/recv "
    "from rank 0. Please check rank 0 logs for faulty rank. Original exception: "
)


def test_rank_0_is_missing_when_all_others_wait_for_it_and_it_names_nobody(read: ReadLog) -> None:
    found = only(read("\n".join(f"[rank{r}]: RuntimeError: {REACHED.format(r)}" for r in (1, 2))))
    assert (found.kind, found.ranks, found.victims) == (FindingKind.MISSING_RANK, (0,), (1, 2))


def test_who_reached_a_barrier_is_a_victim_of_who_did_not(read: ReadLog) -> None:
    text = "[Rank 0]: Rank 1 failed to pass monitoredBarrier in 8000 ms\n" + REACHED.format(2)
    found = only(read(text))
    assert (found.ranks, found.victims) == ((1,), (0, 2))


@pytest.mark.parametrize(
    "text",
    [
        f"[{GLOO}/unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation to complete",
        f"[{GLOO}/unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to complete",
        f"[{GLOO}/pair.cc:553] Connection closed by peer [127.0.0.1]:15261",
        f"[{GLOO}/pair.cc:553] Connection closed by peer [2401:db00::]:8594",
        f"[{GLOO}/pair.cc:537] Read error [127.0.0.1]:15261: Connection reset by peer",
        "Application timeout caused pair closure",
        "wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0",
        "Process group watchdog thread terminated with exception",
        "Received a dump signal due to a collective timeout from rank 3",
        "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels",
        "To avoid data inconsistency, we are taking the entire process down.",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exited: "
        "remote process exited or there was a network error",
    ],
)
def test_what_others_did_to_a_rank_blames_nobody(read: ReadLog, text: str) -> None:
    found = only(read(f"[rank2]: RuntimeError: {text}"))
    assert found.kind is FindingKind.FAILED_OP
    assert found.ranks == ()
    assert found.victims == (2,)


def test_data_without_room_is_a_mismatch(read: ReadLog) -> None:
    session = read(
        "[rank1]: what():  [enforce fail at ../gloo/transport/tcp/pair.cc:453] op.preamble.length <= "
        "op.nbytes. 8 vs 4. Received data size doesn't match expected size. Is there a distributed "
        "collective mismatch in your code?"
    )
    assert only(session).kind is FindingKind.MISMATCH
    assert "it received 8 bytes where it has room for 4" in session.said[0].what


def test_an_abort_of_gloo_by_its_sizes_is_no_death_of_its_own(read: ReadLog) -> None:
    session = read(
        "[rank1]: terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
        "[rank1]:   what():  [enforce fail at pair.cc:453] op.preamble.length <= op.nbytes. 8 vs 4."
    )
    assert [f.kind for f in session.said] == [FindingKind.MISMATCH]


def test_who_did_not_join_is_counted(read: ReadLog) -> None:
    session = read(
        "[rank0]: torch.distributed.DistStoreError: Timed out after 6 seconds waiting for clients. "
        "2/3 clients joined."
    )
    found = only(session)
    assert found.kind is FindingKind.MISSING_RANK
    assert "2 of 3 ranks joined" in found.what
    assert found.ranks == ()
    assert session.world_size == 3


def test_who_did_not_join_is_named_when_all_others_speak(read: ReadLog) -> None:
    found = read(
        "[rank0]: DistStoreError: Timed out after 6 seconds waiting for clients. 2/3 clients joined.\n"
        "[rank2]: DistStoreError: wait timeout after 5000ms, keys: /default_pg/0//cpu//0/0"
    ).said[0]
    assert found.ranks == (1,)


def test_the_old_store_barrier_tells_how_many_came(read: ReadLog) -> None:
    found = only(
        read(
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 1, for "
            "key: store_based_barrier_key:1 (world_size=4, num_workers_joined=3, timeout=0:30:00)"
        )
    )
    assert "3 of 4 ranks joined" in found.what


@pytest.mark.parametrize(
    "text",
    [
        "The server socket has failed to listen on any local network address. port: 29500, useIpv6: "
        "false, code: -98, name: EADDRINUSE, message: address already in use",
        "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
    ],
)
def test_a_port_that_is_taken_is_named(read: ReadLog, text: str) -> None:
    found = only(read(f"torch.distributed.DistNetworkError: {text}"))
    assert found.kind is FindingKind.FAILED_OP
    assert found.what == "port 29500 is taken by another process"


WATCHDOG = (
    "[rank{0}]:[E1120 17:48:01.005271823 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={3}, "
    "Timeout(ms)=1800000) ran for 1800065 milliseconds before timing out."
)


def test_a_watchdog_tells_op_and_rank(read: ReadLog) -> None:
    found = only(read(WATCHDOG.format(7, 96120, "ALLREDUCE", 4)))
    assert found.kind is FindingKind.FAILED_OP
    assert found.victims == (7,)
    assert found.seq == 96120
    assert "all_reduce #96120 timed out after 30 min" in found.what


def test_who_called_fewer_ops_is_behind(read: ReadLog) -> None:
    pg = "[PG ID 0 PG GUID 0(default_pg) Rank {}] Timeout at NCCL work: 12, last enqueued NCCL work: {}, last completed NCCL work: {}."  # noqa: E501
    session = read(
        "\n".join(
            (
                WATCHDOG.format(0, 12, "ALLREDUCE", 4),
                pg.format(0, 12, 11),
                WATCHDOG.format(2, 12, "ALLREDUCE", 4),
                pg.format(2, 12, 11),
                pg.format(1, 11, 11),
            )
        )
    )
    found = session.said[0]
    assert found.kind is FindingKind.MISSING_RANK
    assert found.ranks == (1,)
    assert found.seq == 12
    assert found.what.startswith("rank 1 never called all_reduce #12 on group 'default_pg'")


def test_the_newer_status_line_is_read_alike(read: ReadLog) -> None:
    status = "[PG ID 0 PG GUID 0(default_pg) Rank {}]  failure detected by watchdog at work sequence id: 12 PG status: last enqueued work: {}, last completed work: {}"  # noqa: E501
    found = read("\n".join(status.format(r, 12 if r else 10, 9) for r in range(3))).said[0]
    assert found.ranks == (0,)


def test_watchdogs_of_different_ops_show_a_mismatch(read: ReadLog) -> None:
    found = read(
        "\n".join(
            WATCHDOG.format(r, 5, "BROADCAST" if r == 2 else "ALLREDUCE", 4) for r in range(4)
        )
    ).said[0]
    assert found.kind is FindingKind.MISMATCH
    assert found.ranks == (2,)


@pytest.mark.parametrize(
    "text",
    [
        "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring "
        "enqueued collectives. This typically indicates a NCCL/CUDA API hang",
        "Heartbeat monitor timed out! Process will be terminated after dumping debug info. "
        "workMetaList_.size()=103",
    ],
)
def test_a_watchdog_without_a_heartbeat_is_a_stuck_rank(read: ReadLog, text: str) -> None:
    found = only(read(f"[PG ID 0 PG GUID 0(default_pg) Rank 3] {text}"))
    assert (found.kind, found.ranks) == (FindingKind.STUCK_RANK, (3,))


def test_a_warning_of_nccl_is_shown(read: ReadLog) -> None:
    found = only(
        read(
            "n01:812:990 [3] transport/net_ib.cc:1295 NCCL WARN NET/IB : Got completion with error 12"
        )
    )
    assert found.kind is FindingKind.FAILED_OP
    assert "Got completion with error 12" in found.what


DESYNC = """\
- [3] Timeout at collective: ALLREDUCE, #12
- To our best knowledge, ranks [1] are the lagging ranks that caused this timeout. They never joined any collectives
- [0, 2] joined but didn't finish collective #12 (count from 1)
- Snapshot of ranks' latest states:"""  # noqa: E501


def test_the_desync_report_names_the_lagging_ranks(read: ReadLog) -> None:
    found = read(DESYNC).said[0]
    assert (found.kind, found.ranks) == (FindingKind.MISSING_RANK, (1,))
    assert any("all_reduce #12 timed out" in f.what for f in found.follows)


def test_unused_parameters_are_named_with_their_rank(read: ReadLog) -> None:
    found = only(
        read(
            "[rank1]: RuntimeError: Expected to have finished reduction in the prior iteration before "
            "starting a new one. This error indicates that your module has parameters that were not used\n"
            "[rank1]: Parameters which did not receive grad for rank 1: b.weight\n"
            "[rank1]: Parameter indices which did not receive grad for rank 1: 1"
        )
    )
    assert found.ranks == (1,)
    assert "b.weight" in found.what
    assert "find_unused_parameters" in found.advice


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: [1]: params[1] in this process with sizes [2, 10] appears not to match sizes of "
        "the same param in process 0.",
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 2 params, while rank 1 has "
        "inconsistent 4 params.",
    ],
)
def test_models_that_differ_are_a_mismatch(read: ReadLog, text: str) -> None:
    found = only(read(text))
    assert (found.kind, found.ranks) == (FindingKind.MISMATCH, (1,))


HOROVOD = "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds. "  # noqa: E501


def test_horovod_names_the_missing_ranks_of_a_tensor(read: ReadLog) -> None:
    found = only(
        read(
            "[1,0]<stderr>:[2019-04-13 13:56:31.861697: W horovod/common/operations.cc:588] "
            + HOROVOD
            + "\n[1,0]<stderr>:Stalled ops:HorovodBroadcast_dense_1_bias_0 [missing ranks: 1]"
        )
    )
    assert (found.kind, found.ranks, found.victims) == (FindingKind.MISSING_RANK, (1,), (0,))
    assert "HorovodBroadcast_dense_1_bias_0" in found.what


@pytest.mark.parametrize("head", ["Missing ranks:", "Stalled ranks:"])
def test_horovod_lists_missing_ranks_by_line(read: ReadLog, head: str) -> None:
    found = only(
        read(
            f"[2021-01-02 03:04:05.123456: W /tmp/horovod/common/stall_inspector.cc:107] {HOROVOD}\n"
            f"{head}\n0: [allreduce.conv1.weight, allreduce.bn1.weight ...]\n"
            "2: [allreduce.conv1.weight]\nanother line"
        )
    )
    assert found.ranks == (0, 2)


def test_horovod_lists_who_is_ready(read: ReadLog) -> None:
    found = only(read(f"{HOROVOD}Stalled ops: allreduce.conv1.weight [ready ranks: 5, 1, 4]"))
    assert found.kind is FindingKind.MISSING_RANK
    assert found.ranks == ()
    assert "5, 1, 4" in found.what
