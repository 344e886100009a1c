"""The frames that a report shows of a traceback."""

from __future__ import annotations

from distdbg.launch.report_details import last_frames, last_line

GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "/job/train.py", line 30, in <module>
  |     run(tasks)
  |     ^^^^^^^^^^
  |   File "/job/train.py", line 12, in run
  |     raise ExceptionGroup("many", errors)
  | ExceptionGroup: many (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/job/other.py", line 3, in task
    |     raise ValueError("a")
    | ValueError: a
    +------------------------------------
"""


def test_an_exception_group_is_shown_where_it_was_raised() -> None:
    assert last_frames(GROUP) == [
        'File "/job/train.py", line 30, in <module>',
        "  run(tasks)",
        'File "/job/train.py", line 12, in run',
        '  raise ExceptionGroup("many", errors)',
    ]


def test_the_traceback_of_another_rank_in_a_message_is_not_where_it_was_raised() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/job/load.py", line 9, in load\n'
        "    dcp.load(state)\n"
        "CheckpointException: CheckpointException ranks:dict_keys([1])\n"
        "Traceback (most recent call last): (RANK 1)\n"
        '  File "/venv/lib/python3.11/site-packages/torch/planner.py", line 495, in plan\n'
        "    raise RuntimeError(text)\n"
        "RuntimeError: no key\n"
    )
    assert last_line(last_frames(text)) == ["at load.py:9 (load): dcp.load(state)"]


def test_a_note_that_looks_like_a_traceback_hides_no_frames() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/job/train.py", line 3, in step\n'
        "    raise error\n"
        "ValueError: no data\n"
        "Traceback (most recent call last):\n"
        "  of another process\n"
    )
    assert last_frames(text) == ['File "/job/train.py", line 3, in step', "  raise error"]


def test_the_last_of_them_is_one_line() -> None:
    frames = ['File "/job/a.py", line 1, in <module>', "  main()", 'File "/job/b c.py", line 80, in main',
              "  y = x / 0"]  # fmt: skip
    assert last_line(frames) == ["at b c.py:80 (main): y = x / 0"]
    assert last_line(frames[:1]) == ["at a.py:1 (<module>)"]
    [cut] = last_line([*frames[:3], "  " + "word " * 100])
    assert cut.endswith(" ...")
    assert len(cut) < 140
    assert last_line(["no frame"]) == ["no frame"]
    assert last_line([]) == []


def test_the_one_line_is_of_the_program_and_not_of_a_library_below_it() -> None:
    frames = [
        'File "/job/train.py", line 5, in grow',
        "  keep.append(np.ones(8))",
        'File "/venv/lib/python3.11/site-packages/numpy/numeric.py", line 232, in ones',
        "  a = empty(shape)",
    ]
    assert last_line(frames) == ["at train.py:5 (grow): keep.append(np.ones(8))"]
    assert last_line(frames[2:]) == ["at numeric.py:232 (ones): a = empty(shape)"]
    compiled = ['File "numpy/random/_common.pyx", line 333, in numpy.random._common.float_fill']
    assert last_line([*frames[:2], *compiled]) == last_line(frames)
