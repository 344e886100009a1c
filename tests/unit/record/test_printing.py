"""What `python -m distdbg.record` prints, and how it fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from distdbg.errors import RecordError
from distdbg.record.__main__ import main, to_plain
from distdbg.record.entries import OpEntry
from distdbg.record.folders import attempt_folder, user_folder
from distdbg.record.format import COUNTER, Aside, Section, Status
from distdbg.record.printable import printable
from distdbg.record.rank_words import Clock
from distdbg.record.reader import read_record
from distdbg.record.text import format_duration, format_nbytes, quantile_ns, render
from tests.support.record_builder import RecordBuilder
from tests.support.record_examples import build_short, build_wrapped

SHORT = """\
rank 12 of 16 on n14, pid 4711, began 2025-11-24 16:00:00 UTC
  <bytes>, run example
  command: train.py
  distdbg 0.1.0, Python 3.12.1, level off
  raised ValueError: 7 is not a colour, 10 s ago
group 'dp': ranks 0-15, here 12, cpu
  2 collectives issued, 1 ended
  all_reduce: 1 ended, 4.0 KiB, longest 250 ns, waited 0 ns (0%)
in flight
  barrier #2 on group 'dp' for 10 s
    train.py:91 (save)
    train.py:120 (main)
last 7 of 7 events, seconds after the beginning
  +0.000001 span forward begins
  +0.000001 all_reduce #1 on group 'dp' float32[1024] (layer 3) ok 250 ns at train.py:80 (step)
  +0.000001 span of event 1 ends
  +0.000001 mark step 12
  +0.000002 recv #1 on group 'dp' with group rank any, tag 7 int8 async peer lost 80 ns
  +0.000002 finding: order
  +0.000002 barrier #2 on group 'dp' in flight at train.py:91 (save)
errors and findings
  PeerLost
  order"""


def show(build: RecordBuilder, *, is_live: bool = False, most_events: int = 20) -> list[str]:
    record = read_record(build.to_bytes(), salvage=True)
    clock = Clock(record.header, 10 * 10**9, record.header.boot_id)
    return render(record, clock, is_live=is_live, most_events=most_events)


def test_the_whole_text() -> None:
    assert "\n".join(show(build_short())) == SHORT


def test_only_the_last_events_are_shown_but_all_ops_in_flight() -> None:
    lines = show(build_wrapped(), most_events=2)
    begin = lines.index("in flight")
    assert [line.split(" on ")[0] for line in lines[begin + 1 :] if line.startswith("  b")] == [
        "  broadcast #2",
        "  broadcast #8",
    ]
    events = lines[next(i for i, line in enumerate(lines) if line.startswith("last ")) :]
    assert events[0] == "last 2 of 17 events, seconds after the beginning"
    assert [line.split()[1] for line in events[1:]] == ["broadcast", "all_reduce"]


@pytest.mark.parametrize(
    ("is_live", "words"),
    [
        (True, "runs; last seen in an op 10 s ago"),
        (
            False,
            "ended without a reason in its record (killed or crashed), or runs elsewhere; last seen",
        ),
    ],
)
def test_a_record_without_an_end_says_whether_somebody_writes_it(is_live: bool, words: str) -> None:
    assert words in show(RecordBuilder(), is_live=is_live)[4]


def test_an_error_is_told_in_full_and_once() -> None:
    build = RecordBuilder(text_count=4)
    group = build.add_group("dp")
    text = json.dumps({"type": "OpTimeout", "what": "it took too long", "details": ["rank 1"]})
    build.end(build.issue("barrier", group), after_ns=5, status=Status.TIMEOUT, error=text)
    build.find(text, group)
    build.set_group(group, broken=0)
    lines = show(build)
    assert lines[lines.index("errors and findings") + 1 :] == [
        "  OpTimeout: it took too long",
        "    rank 1",
    ]


def test_quantiles_are_limits_by_powers_of_two() -> None:
    buckets = [0] * 40
    assert quantile_ns(buckets, 0.5) is None
    buckets[9], buckets[20] = 98, 2  # from 512 to 1023, and about a millisecond
    assert quantile_ns(buckets, 0.5) == 1024
    assert quantile_ns(buckets, 0.99) == 1 << 21
    buckets[39] = 1000
    assert quantile_ns(buckets, 0.99) == 1 << 39


def test_units() -> None:
    assert [format_duration(n) for n in (0, 999, 1_024, 999_600, 33_600_000, 3_100_000_000)] == [
        "0 ns", "999 ns", "1.02 us", "1000 us", "33.6 ms", "3.1 s",
    ]  # fmt: skip
    assert [format_nbytes(n) for n in (8, 4096, 3 << 20, 5 << 30, 7 << 40)] == [
        "8 B", "4.0 KiB", "3.0 MiB", "5.0 GiB", "7.0 TiB",
    ]  # fmt: skip


def test_no_word_of_a_record_reaches_the_terminal_as_a_command() -> None:
    build = RecordBuilder(host="n\x1b[31m14")
    assert printable("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert all(line.isprintable() for line in show(build))


def test_counters_of_asides_have_their_names() -> None:
    build = build_short()
    data = bytearray(build.to_bytes())
    place = build.offset_of(Section.COUNTERS, 0) + COUNTER["kind"].offset
    for kind, label in ((Aside.NEW_GROUP, "new_group"), (77, "kind 77")):
        data[place] = kind
        record = read_record(bytes(data))
        clock = Clock(record.header, 0, "")
        lines = render(record, clock, is_live=False, most_events=0)
        assert any(line.startswith(f"  {label}: 1 ended") for line in lines)
    plain = to_plain(record, is_live=False, most_events=0)
    assert plain["counters"][0]["kind"] == 77


def test_json_holds_the_same() -> None:
    record = read_record(build_short().to_bytes())
    plain = json.loads(json.dumps(to_plain(record, is_live=False, most_events=3)))
    assert plain["header"]["rank"] == 12
    assert plain["state"]["exit"] == "raised"
    assert plain["groups"][0]["progress"]["issued_seq"] == 2
    assert plain["counters"][0]["kind"] == "all_reduce"
    assert [event["type"] for event in plain["events"]] == ["Op", "Finding", "Op"]
    barrier = plain["in_flight"][0]
    assert (barrier["name"], barrier["status"], barrier["group"]) == ("barrier", "in flight", 1)
    assert barrier["stack"][0] == {"file": "train.py", "line": 91, "function": "save"}
    assert isinstance(record.events[-1], OpEntry)


def test_a_folder_is_printed_rank_by_rank_and_what_is_no_record_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(2):
        build = RecordBuilder(rank=rank, world_size=2)
        (tmp_path / f"rank0000{rank}.ddr").write_bytes(build.to_bytes())
    assert main([str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert [line[:11] for line in out.splitlines() if line.startswith("rank")] == [
        "rank 0 of 2",
        "rank 1 of 2",
    ]
    (tmp_path / "rank00000.ddr").write_bytes(b"no record")
    assert main([str(tmp_path), "--json"]) == 7
    shown = capsys.readouterr()
    assert [record["header"]["rank"] for record in json.loads(shown.out)["records"]] == [1]
    assert shown.err.startswith(f"RecordError: {tmp_path}/rank00000.ddr")
    assert shown.err.count("\n") == 1


def test_a_run_is_found_by_its_folder_its_name_and_the_beginning_of_it_and_its_last_start_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runs = user_folder()
    for name in ("20260101-000000-aaaaaa", "20260102-000000-bbbbbb"):
        for attempt in (0, 1):
            folder = attempt_folder(runs / name, attempt)
            folder.mkdir(parents=True)
            build = RecordBuilder(rank=attempt, world_size=2)
            (folder / f"rank0000{attempt}.ddr").write_bytes(build.to_bytes())
    (runs / "latest").symlink_to("20260102-000000-bbbbbb")
    for words in ([], ["20260101"], ["20260101-000000-aaaaaa"], [str(runs / "latest")]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("rank 1 of 2")
    assert main(["2026"]) == 7
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "RecordError: '2026' fits 2 runs"
    assert [line.split(",")[0].split() for line in said[1:]] == [
        ["20260102-000000-bbbbbb", "train.py"], ["20260101-000000-aaaaaa", "train.py"],
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["missing.ddr", "empty"])
def test_nothing_to_print_is_a_record_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "empty").mkdir()
    assert main([str(tmp_path / name)]) == 7
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"RecordError: {tmp_path / name}")
    assert shown.err.count("\n") == 1


def test_a_count_that_is_none_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--ops", "-1"])
    assert caught.value.code == 2


def test_it_needs_neither_native_code_nor_numpy(tmp_path: Path) -> None:
    path = tmp_path / "rank00012.ddr"
    path.write_bytes(build_short().to_bytes())
    program = (
        "import sys, runpy\n"
        "sys.modules['distdbg._native'] = sys.modules['numpy'] = None\n"
        f"sys.argv = ['record', {str(path)!r}]\n"
        "runpy.run_module('distdbg.record', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("rank 12 of 16 on n14, pid 4711")


def test_a_folder_that_may_not_be_read_is_an_error_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with patch("os.scandir", side_effect=PermissionError(13, "Permission denied", str(tmp_path))):
        assert main([str(tmp_path)]) == RecordError.exit_code
    assert capsys.readouterr().err == f"RecordError: {tmp_path} cannot be read: Permission denied\n"
