"""How a failed job is told: golden texts for each way in which it fails."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from distdbg.diagnose.finding import Evidence
from distdbg.diagnose.traits import FactKind, Trait
from distdbg.launch.diagnosis import Diagnosis
from distdbg.launch.evidence import LostRankEvidence
from distdbg.launch.last_seen import LastSeen
from distdbg.record.ends import BY_SYS_EXIT
from distdbg.record.format import Exit
from distdbg.record.rank_state import RankState
from tests.unit.launch.report_facts import (
    BEGAN,
    FOLDER,
    TRACE,
    S,
    code,
    ended,
    error,
    golden,
    lost,
    record,
    reported,
    terminated,
)


def test_a_job_that_ends_well_says_nothing() -> None:
    assert reported(LostRankEvidence(end=ended(0)), LostRankEvidence(end=ended(1))) == ""
    assert code(LostRankEvidence(end=ended(0))) == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_who_ran_out_of_batches_leads_also_where_no_diagnosis_is_at_hand(leaves: bool) -> None:
    said = "rank 1 ran out of batches at step 312; ranks 0,2 went on"
    text = "RankLeft: rank 1 left" if leaves else "MismatchError: op #9 differs: x on ranks 0,2"
    failed = [
        LostRankEvidence(
            end=ended(rank, exit_code=1),
            error=error(text, because_of=(1,), details=(said, "called at train.py:8 (step)")),
        )
        for rank in ((0, 2) if leaves else (0, 1, 2))
    ]
    lines = reported(*failed, *([LostRankEvidence(end=ended(1))] if leaves else [])).splitlines()
    assert lines[0].endswith("MISMATCH: rank 1 ran out of batches at step 312, ranks 0,2 went on")
    assert not [line for line in lines[1:] if "ran out" in line]
    assert "  called at train.py:8 (step)" in lines


def test_an_exception_is_told_with_its_lines() -> None:
    first = LostRankEvidence(
        end=ended(2, exit_code=1),
        error=error("ValueError: no data", traceback=TRACE),
        error_file=f"{FOLDER}/logs/attempt_0/2/error.json",
    )
    golden(
        reported(first, terminated(0), terminated(1), terminated(3)),
        [
            "FAILED: rank 2 raised ValueError: no data (host n14, pid 8812)",
            "  at train.py:80 (main): step(batch)",
            "  ranks 0-1,3 were terminated because of it",
            f"  error file: {FOLDER}/logs/attempt_0/2/error.json",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(first, terminated(0)) == 1


def test_an_exception_without_error_file_is_taken_from_the_record() -> None:
    facts = record(
        "raised ValueError: no data 0.1 s ago, train.py:80 (main)",
        how=Exit.RAISED,
        raised="ValueError: no data",
        raised_wall_ns=BEGAN + S // 2,
    )
    golden(
        reported(LostRankEvidence(end=ended(2, exit_code=1), record=facts), terminated(0)),
        [
            "FAILED: rank 2 raised ValueError: no data (host n14, pid 8812)",
            "  raised ValueError: no data 0.1 s ago, train.py:80 (main)",
            "  rank 0 was terminated because of it",
            f"  run folder: {FOLDER}",
        ],
    )


def test_a_code_without_an_exception_is_of_sys_exit() -> None:
    facts = record("its program returned 0.1 s ago", how=Exit.RETURNED)
    text = reported(LostRankEvidence(end=ended(2, exit_code=3), record=facts), terminated(0))
    assert f"  hint: {BY_SYS_EXIT}\n" in text
    assert "@distdbg.record" in reported(LostRankEvidence(end=ended(2, exit_code=3)), terminated(0))


def test_an_exception_without_any_file_shows_the_end_of_stderr() -> None:
    first = LostRankEvidence(
        end=ended(2, exit_code=1), stderr_file="/logs/2/stderr.log", stderr_tail=("a", "Error: b")
    )
    golden(
        reported(first, terminated(0)),
        [
            "FAILED: rank 2 exited with code 1 (host n14, pid 8812)",
            "  the end of its stderr:",
            "    a",
            "    Error: b",
            "  hint: @distdbg.record on main() brings its traceback here",
            "  rank 0 was terminated because of it",
            "  stderr: /logs/2/stderr.log",
            f"  run folder: {FOLDER}",
        ],
    )


def test_an_exit_code_is_told_and_passed_on() -> None:
    evidence = [LostRankEvidence(end=ended(1, exit_code=3)), terminated(0), terminated(2)]
    golden(
        reported(*evidence, max_restarts=3, attempt=3),
        [
            "FAILED: rank 1 exited with code 3 (host n14, pid 8811)",
            "  hint: @distdbg.record on main() brings its traceback here",
            "  restarts used: 3 of 3",
            "  ranks 0,2 were terminated because of it",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(*evidence) == 3


def test_a_kill_is_told_with_where_the_rank_was_and_who_lost_it() -> None:
    first = LostRankEvidence(
        end=ended(2, signal=9), record=record("in all_reduce #12 on group 'dp' for 0.1 s")
    )
    evidence = [first, lost(0, 2), lost(1, 2), lost(3, 2)]
    golden(
        reported(*evidence),
        [
            "RANK DIED: rank 2 was killed by SIGKILL (host n14, pid 8812)",
            "  memory: no kill by the kernel's OOM killer",
            "  at its end: in all_reduce #12 on group 'dp' for 0.1 s",
            "  ranks 0-1,3 failed because of it: PeerLost",
            "  hint: who sent SIGKILL is unknown: the scheduler, a person, or the program itself; it was not "
            "the kernel's OOM killer, whose counter did not rise",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(*evidence) == 137


def test_an_age_at_the_end_is_counted_from_that_end() -> None:
    known = record("last op barrier #3 on group 'dp' ended 4.0 s ago, called at a.py:9 (main)")
    text = reported(LostRankEvidence(end=ended(2, signal=9), record=known))
    assert "at its end: last op barrier #3 on group 'dp' ended 4.0 s before, called at" in text


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_crash_is_told_by_name(number: signal.Signals) -> None:
    first = LostRankEvidence(end=ended(2, signal=number, core_dumped=True))
    golden(
        reported(first, terminated(0), terminated(1), terminated(3)),
        [
            f"RANK DIED: rank 2 was killed by {number.name} (core dumped) (host n14, pid 8812)",
            "  hint: native code crashed: look into the core dump, or see its stack in the rank's stderr "
            "(PYTHONFAULTHANDLER=1)",
            "  ranks 0-1,3 were terminated because of it",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(first) == 128 + number


def test_a_termination_from_outside_is_no_fault_of_the_program() -> None:
    text = reported(LostRankEvidence(end=ended(0, signal=15)), terminated(1))
    assert "rank 0 was killed by SIGTERM" in text
    assert "hint: SIGTERM came from outside" in text


def test_a_sigint_may_be_a_keyboard_interrupt_of_the_program_itself() -> None:
    text = reported(LostRankEvidence(end=ended(0, signal=2)), terminated(1))
    assert "rank 0 was killed by SIGINT" in text
    assert "came from outside" not in text
    assert "or the program raised KeyboardInterrupt itself" in text


def test_a_mismatch_on_all_ranks_is_told_once() -> None:
    text = (
        "MismatchError: all_reduce #1042 on group 'dp' differs between ranks: "
        "float32[1024] on ranks 0-2, float32[1023] on rank 3"
    )
    details = ("rank 3 called it at train.py:88 (step)", "no data was exchanged")
    evidence = [
        LostRankEvidence(
            end=ended(rank, exit_code=1),
            error=error(
                f"{text}\n  {details[0]}",
                details=(*details, f"rank {rank} is this one"),
                hint="pad the last batch",
            ),
        )
        for rank in range(4)
    ]
    golden(
        reported(*evidence),
        [
            text.replace("MismatchError:", "MISMATCH:"),
            "  rank 3 called it at train.py:88 (step)",
            "  hint: pad the last batch",
            f"  run folder: {FOLDER}",
        ],
    )
    assert code(*evidence) == 1


def test_a_rank_that_hung_is_told_with_where_it_was() -> None:
    late = error(
        "OpTimeout: all_gather #77 on group 'tp' waited 30.0 s for rank 2",
        waits_for=(2,),
        details=("the others arrived within 0.2 s",),
    )
    hung = replace(terminated(2), record=record("last op barrier #76 ended 31.0 s ago"))
    golden(
        reported(LostRankEvidence(end=ended(0, exit_code=1), error=late), hung, terminated(1)),
        [
            "HUNG: rank 0 raised OpTimeout: all_gather #77 on group 'tp' waited 30.0 s for rank 2",
            "  the others arrived within 0.2 s",
            "  rank 2: last op barrier #76 ended 31.0 s ago; terminated by the launcher",
            "  host n14, pid 8810",
            "  ranks 1-2 were terminated because of it",
            f"  run folder: {FOLDER}",
        ],
    )
    seen = {
        1: LastSeen("in step() at slp.py:12"),
        2: LastSeen("asleep in load() at slp.py:7", RankState.ASLEEP),
    }
    text = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=late), hung, terminated(1), seen=seen
    )
    assert text.splitlines()[:2] == [
        "HUNG: rank 2 was asleep in load() at slp.py:7",
        "  rank 0 raised OpTimeout: all_gather #77 on group 'tp' waited 30.0 s for rank 2",
    ]


def test_ranks_that_gave_up_in_a_deadlock_are_told_by_the_records() -> None:
    errors = [
        error(f"OpTimeout: recv waited 8 s for rank {1 - r}", waits_for=(1 - r,)) for r in (0, 1)
    ]
    gave_up = [LostRankEvidence(end=ended(r, exit_code=1), error=errors[r]) for r in (0, 1)]
    said = "raised OpTimeout: recv waited 8 s for rank 0"
    gave_up[1] = replace(gave_up[1], record=record(f"{said} 3.2 s ago, a.py:9 (main)"))
    shown = Diagnosis(
        kind="deadlock",
        what="ranks 0-1 are deadlocked: both wait in recv at a.py:9",
        ranks=(0, 1),
        evidence=("rank 0 waits in recv from rank 1 at a.py:9 (main)",),
        advice="let one of them send first",
    )
    lines = reported(*gave_up, diagnosis=shown, seen={1: LastSeen("holding the GIL")}).splitlines()
    assert lines[0] == f"DEADLOCK: {shown.what}"
    assert lines[1] == f"  {shown.evidence[0]}"
    assert "  hint: let one of them send first" in lines
    # Without the records, what a rank did after it had given up is no cause.
    lines = reported(*gave_up, seen={1: LastSeen("holding the GIL")}).splitlines()
    assert lines[0].startswith("HUNG: rank 0 raised OpTimeout: recv waited 8 s for rank 1 (host ")
    assert f"  rank 1: {said} 3.2 s ago, a.py:9 (main)" in lines
    assert "GIL" not in "".join(lines)


def test_a_rank_that_hung_is_told_with_what_the_records_show_of_it() -> None:
    late = error("OpTimeout: op #8 waited 8 s for rank 2", waits_for=(2,), hint="raise the limit")
    gave_up = (LostRankEvidence(end=ended(0, exit_code=1), error=late), terminated(2))
    call = "rank 2: one call that does not return (sre_match)"
    known = Diagnosis(
        kind="stuck rank",
        what="rank 0 waited 8 s for rank 2, holding the GIL",
        ranks=(2,),
        evidence=("rank 2 was holding the GIL for 8 s", call),
        facts=(
            Evidence(
                kind=FactKind.REASON,
                text=call,
                ranks=(2,),
                detail="one call that does not return (sre_match)",
            ),
        ),
        advice="look at that call",
    )
    text = reported(*gave_up, diagnosis=known, seen={2: LastSeen("holding the GIL at a.py:9")})
    lines = text.splitlines()
    assert (lines[0], lines[2]) == ("HUNG: rank 2 was holding the GIL at a.py:9", f"  {call}")
    assert "hint: look at that call" in text
    assert "raise the limit" not in text
    lock = "its thread 'saver' is at b.py:3 (save)"
    held = replace(
        known,
        facts=(
            Evidence(
                kind=FactKind.REASON,
                text=f"rank 2: blocked on a lock; {lock}",
                ranks=(2,),
                detail=lock,
            ),
        ),
        advice="compare the order",
    )
    text = reported(
        *gave_up, diagnosis=held, seen={2: LastSeen(f"waiting for a lock at a.py:9; {lock}")}
    )
    assert (text.count("saver"), "hint: compare the order" in text) == (1, True)
    endless = replace(
        known,
        advice="see whether `while gap > limit` (line 9) ends on rank 2",
        traits=frozenset((Trait.ENDLESS_LOOP,)),
    )
    busy = {2: LastSeen("busy in f() at a.py:9", RankState.BUSY)}
    assert endless.advice in reported(*gave_up, diagnosis=endless, seen=busy)
    for seen in (busy, {}):  # it may be slow, and nothing else
        assert "hint: raise the limit" in reported(*gave_up, diagnosis=known, seen=seen)


def test_a_rank_that_no_agent_saw_and_that_did_not_come_is_told_first() -> None:
    late = error("OpTimeout: op #8 waited 8 s for rank 2", waits_for=(2,), hint="raise the limit")
    gave_up = (LostRankEvidence(end=ended(0, exit_code=1), error=late), terminated(2))
    known = Diagnosis(
        kind="missing rank",
        what="rank 2 never called all_reduce #8, in which rank 0 waited for 8 s",
        ranks=(2,),
        evidence=("rank 2 last called all_reduce #7 at a.py:9",),
        advice="see what it did after its last op",
    )
    lines = reported(*gave_up, diagnosis=known).splitlines()
    assert lines[:2] == [f"HUNG: {known.what}", f"  {known.evidence[0]}"]
    assert f"  hint: {known.advice}" in lines
    seen = reported(*gave_up, diagnosis=known, seen={2: LastSeen("asleep in load() at a.py:4")})
    assert seen.startswith("HUNG: rank 2 was asleep in load() at a.py:4\n")


def test_a_rank_that_lost_another_before_it_was_terminated_has_failed_because_of_it() -> None:
    late = replace(terminated(3), error=lost(3, 2).error)
    text = reported(LostRankEvidence(end=ended(2, signal=9)), lost(0, 2), lost(1, 2), late)
    assert "  ranks 0-1,3 failed because of it: PeerLost" in text
    assert "terminated because of it" not in text
    assert "rank 3 was terminated" in reported(
        LostRankEvidence(end=ended(2, signal=9)), terminated(3)
    )


def test_parameters_that_a_rank_did_not_use_come_before_torchs_text() -> None:
    text = "RuntimeError: Expected to have finished reduction in the prior iteration before x. You can enable"
    trace = (
        "Traceback (most recent call last):\n"
        '  File "/job/multi.py", line 25, in loss_of\n    y = model(x)\n'
        '  File "/v/lib/python3.11/site-packages/torch/module.py", line 1, in a\n    f()\n'
        '  File "/v/lib/python3.11/site-packages/torch/module.py", line 2, in b\n    f()\n'
        '  File "/v/lib/python3.11/site-packages/torch/module.py", line 3, in c\n    f()\n' + text
    )
    raised = error(text, traceback=trace)
    unused = "rank 2 gave no gradient to head.weight, head.bias in step 1"
    known = Diagnosis(
        kind="dead rank",
        what="rank 2 did not use head.weight, head.bias in step 1",
        ranks=(2,),
        evidence=(unused, "rank 2 raised"),
        facts=(Evidence(kind=FactKind.NO_GRADIENT, text=unused, ranks=(2,)),),
        advice="use all parameters on every rank",
        traits=frozenset((Trait.UNUSED_PARAMETERS,)),
    )
    first = LostRankEvidence(end=ended(2, exit_code=1), error=raised)
    lines = reported(first, terminated(0), diagnosis=known).splitlines()
    assert lines[0] == f"FAILED: {known.what}"
    assert f"  {known.evidence[0]}" in lines
    assert "  at multi.py:25 (loss_of): y = model(x)" in lines
    assert f"  hint: {known.advice}" in lines
    assert not any("You can enable" in line for line in lines)


def test_the_last_op_of_a_late_rank_is_told_once() -> None:
    said = "rank 2 last called op #76 on this group; last op barrier #76 ended 30.0 s ago"
    late = error("OpTimeout: all_gather #77 waited 30.0 s", waits_for=(2,), details=(said,))
    gave_up = LostRankEvidence(end=ended(0, exit_code=1), error=late)
    hung = replace(terminated(2), record=record("last op barrier #76 ended 31.0 s ago"))
    text = reported(gave_up, hung, terminated(1))
    assert text.count("barrier #76") == 1
    assert said in text
    none = "rank 2 has called no collective on this group; has called no op yet"
    late = error("OpTimeout: barrier #1 waited 15.0 s", waits_for=(2,), details=(none,))
    idle = replace(terminated(2), record=record("has called no op yet"))
    assert (
        reported(LostRankEvidence(end=ended(0, exit_code=1), error=late), idle).count("no op yet")
        == 1
    )
    other = replace(terminated(1), record=record("last op barrier #76 ended 31.0 s ago"))
    named = error("OpTimeout: all_gather #77", waits_for=(1, 2), details=(said,))
    text = reported(LostRankEvidence(end=ended(0, exit_code=1), error=named), hung, other)
    assert "rank 1: last op barrier #76 ended 31.0 s ago; terminated by the launcher" in text


def test_64_ranks_fit_into_a_few_lines() -> None:
    evidence = [lost(rank, 17) for rank in range(64) if rank != 17]
    evidence.append(LostRankEvidence(end=ended(17, signal=11)))
    text = reported(*evidence)
    assert text.splitlines()[0] == ("RANK DIED: rank 17 was killed by SIGSEGV (host n14, pid 8827)")
    assert "ranks 0-16,18-63 failed because of it" in text
    assert len(text.splitlines()) < 8


def test_64_ranks_that_fail_in_64_ways_are_cut() -> None:
    evidence = [
        LostRankEvidence(end=ended(r, exit_code=1), error=error(f"ValueError: {r}", r / 100))
        for r in range(64)
    ]
    text = reported(*evidence)
    assert "rank 0 raised ValueError: 0" in text
    assert "ranks 9-63 failed as well, in 55 other ways" in text
    assert len(text.splitlines()) < 16


def test_nothing_of_a_rank_reaches_the_terminal_but_printable_text() -> None:
    text = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=error("ValueError: \x1b[2J\r gone"))
    )
    assert text.isascii()
    assert all(line.isprintable() for line in text.splitlines())


def test_a_long_reason_pushes_the_rest_below_and_is_cut() -> None:
    text = reported(
        LostRankEvidence(end=ended(0, exit_code=1), error=error("ValueError: " + "x" * 999))
    )
    lines = text.splitlines()
    assert len(lines[0]) < 300
    assert lines[1] == "  host n14, pid 8810"


def test_a_hint_is_given_once() -> None:
    text = "UsageError: wrong thing\n  hint: do the right one"
    one = LostRankEvidence(end=ended(0, exit_code=1), error=error(text, hint="do the right one"))
    assert reported(one).count("hint: do the right one") == 1
