"""What an error says whose message carries the traceback of a worker, a process or another rank."""

from __future__ import annotations

import traceback

import pytest

from distdbg.record.carried_traceback import read_carried, read_remote, words_of_failed

LOADER = """\
OSError: Caught OSError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 374, in _worker_loop
    data = fetcher.fetch(index)
           ^^^^^^^^^^^^^^^^^^^^
  File "/job/loader.py", line 7, in __getitem__
    raise OSError("bad shard 9")
OSError: bad shard 9
"""
SAVING = """\
CheckpointException: CheckpointException ranks:dict_keys([1, 3])
Traceback (most recent call last): (RANK 1)
  File "/job/save.py", line 6, in write_data
    raise OSError(28, "No space left on device")
OSError: [Errno 28] No space left on device
Traceback (most recent call last): (RANK 3)
  File "/job/save.py", line 8, in write_data
    raise ValueError("no room")
ValueError: no room
"""


def said(text: str, own_rank: int | None = None) -> str:
    found = read_carried(text, own_rank)
    return "" if found is None else found.text


def test_an_error_of_a_dataloaders_worker_is_what_the_worker_raised() -> None:
    found = read_carried(LOADER)
    assert found is not None
    assert found.text == "OSError: bad shard 9 (in DataLoader worker process 0)"
    assert found.type == "OSError"
    lines = found.traceback.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-3:] == [
        '  File "/job/loader.py", line 7, in __getitem__',
        '    raise OSError("bad shard 9")',
        "OSError: bad shard 9",
    ]


def test_the_type_of_the_error_in_the_worker_counts_where_torch_could_not_raise_it_again() -> None:
    text = LOADER.replace("OSError: Caught OSError", "RuntimeError: Caught BadShard").replace(
        "\nOSError: bad", "\njob.BadShard: bad"
    )
    assert said(text) == "BadShard: bad shard 9 (in DataLoader worker process 0)"


def test_a_rank_says_its_own_error_of_a_checkpoint_and_others_whose_it_is() -> None:
    assert said(SAVING, 1) == "OSError: [Errno 28] No space left on device (CheckpointException)"
    assert said(SAVING, 3) == "ValueError: no room (CheckpointException)"
    other = "CheckpointException: OSError: [Errno 28] No space left on device (RANK 1)"
    assert said(SAVING, 0) == said(SAVING) == other
    found = read_carried(SAVING, 3)
    assert found is not None
    assert "line 8, in write_data" in found.traceback
    assert "line 6" not in found.traceback
    assert words_of_failed(said(SAVING, 0)) == said(SAVING, 1)
    assert words_of_failed(said(SAVING, 1)) == words_of_failed("ValueError: no data") == ""


def test_of_errors_in_a_chain_the_last_was_raised() -> None:
    def fail() -> None:
        try:
            raise KeyError("shard")
        except KeyError as error:
            raise ValueError("no such shard") from error

    try:
        fail()
    except ValueError:
        text = traceback.format_exc()
    head = "ValueError: Caught ValueError in DataLoader worker process 0.\nOriginal "
    assert said(head + text) == "ValueError: no such shard (in DataLoader worker process 0)"
    quoting = LOADER.partition("Original ")[2]
    assert said(head + text + quoting) == said(head + text)
    assert said(head.replace("Caught Value", "Caught Key") + text) == ""


def test_an_exception_group_says_itself_and_not_a_member() -> None:
    try:
        raise ExceptionGroup("two shards", [ValueError("a"), OSError("b")])
    except ExceptionGroup:
        text = traceback.format_exc()
    found = read_remote(f'\n"""\n{text}"""', "ExceptionGroup: two shards (2 sub-exceptions)")
    assert found is not None
    assert found.text == "ExceptionGroup: two shards (2 sub-exceptions)"
    assert "test_carried_traceback.py" in found.traceback


def test_a_process_of_torchs_spawn_says_what_it_raised() -> None:
    text = LOADER.partition("Original ")[2]
    head = "ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
    assert said(head + text) == (
        "ProcessRaisedException: Process 1 terminated with the following error: OSError: bad shard 9"
    )


QUOTED = """\
Traceback (most recent call last):
  File "/job/conv.py", line 3, in cache
    {}['cache']
KeyError: 'cache'
no space left on /scratch
"""


def test_an_error_that_quotes_the_log_of_a_process_keeps_its_own_words() -> None:
    for head in (
        "RuntimeError: conversion failed for shard 9\nstderr:\n",
        "CalledProcessError: Command 'conv' failed\nstderr: INFO start ",
        "ValueError: On WorkerInfo(id=1, name=worker1):\nValueError('x')\n",
        "RuntimeError: convert.py: Caught KeyError in DataLoader worker process 0.\nOriginal ",
        "RuntimeError: CheckpointException ranks:dict_keys([1])\n",
    ):
        assert read_carried(head + QUOTED) is None, head


def test_a_worker_of_a_pool_that_quotes_a_log_failed_where_it_raised() -> None:
    raised = """\n\"\"\"\nTraceback (most recent call last):
  File "/job/load.py", line 7, in read
RuntimeError: conversion failed\n"""
    found = read_remote(raised + QUOTED, "RuntimeError: conversion failed\n" + QUOTED)
    assert found is not None
    assert "load.py" in found.traceback
    assert "conv.py" not in found.traceback
    assert read_remote(raised + QUOTED, "KeyError: 'cache'") is None


@pytest.mark.parametrize("line", ["Killed.", "X.", ".X", "X.: no", "INFO: loaded", "WARNING"])
def test_a_line_that_is_no_error_is_none(line: str) -> None:
    assert read_carried(LOADER.replace("\nOSError: bad shard 9", f"\n{line}")) is None


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: no data",
        "",
        "ValueError: see the\nTraceback (most recent call last):",
        LOADER.rpartition("OSError:")[0],
        LOADER.replace("\nOSError: bad shard 9", "\n... 20000 characters ...\n"),
        "ValueError: no data\nTraceback (most recent call last):\n  of another process\n",
    ],
)
def test_a_message_without_the_end_of_a_traceback_carries_none(text: str) -> None:
    assert read_carried(text) is None


def test_each_line_may_be_missing() -> None:
    lines = (LOADER + SAVING).splitlines()
    for at in range(len(lines)):
        for until in range(at, len(lines)):
            found = read_carried("\n".join(lines[at:until]), 1)
            assert found is None or "\n" not in found.text


@pytest.mark.parametrize("line", ["Killed.", "X."])
def test_a_process_that_was_spawned_has_an_error_with_a_name(line: str) -> None:
    head = "ProcessRaisedException: \n\n-- Process 1 terminated with the following error:\n"
    trace = LOADER.partition("Original ")[2].replace("\nOSError: bad shard 9", f"\n{line}")
    assert read_carried(head + trace) is None
