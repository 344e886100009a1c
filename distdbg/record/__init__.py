"""The record: one file per rank with what it did and is doing. Observers read nothing else of a rank.

    rank (native/core/record.hpp writes)  ->  <run>/rank00012.ddr  ->  reader, tail, diagnosis

Reading needs the standard library only. Nothing here is imported by native code; the numbers of the
layout are in `format.py` and a test compares them with C++.

`dist.record` is this package, and also torch's decorator: a module that can be called.

batches         whether a rank ran out of batches before others did, by the marks and calls in their
                records
carried_traceback  the error in a message that carries the traceback of a worker, of a process or of
                another rank
columns         a record as columns
decorator       writes what ended the decorated function into the error file of the process
durations       durations, ages and sizes for people, written in one way everywhere
ends            how ranks ended
entries         what a reader gives
error_file      the error file of a process
folders         where the records of a run go, and how long they stay
form_text       a form in one line for people
format          the layout of a record, byte by byte; the same numbers are in native/core/record_layout.hpp
forms           what calls of one shape have in common, as JSON of at most 488 bytes
handled_error   the error that the program was handling when an op of it failed
header          reads the first two pages
holes           gives back what a record has reserved on disk and never used
host            the name of this host in records, file names and messages
join_calls      the calls of init_process_group on a host
join_note       what a rank notes of its call of init_process_group, torch's or ours, for those that
                look on
join_waits      for whom ranks wait in init_process_group, by the calls of all of them
known_marks     marks and spans that distdbg itself writes for a program, so that readers know them
libraries       which files are of Python and of installed packages, and not of the program that a rank
                runs
line_file       files of lines that several processes add to, and that are read while they do
line_times      when the lines of a log file were written
memory_share    a rank that was killed and had used much more memory than the others
observations    what a host's agent saw of its ranks
parse           turns the bytes of one entry of the ring into an event, with its references resolved
passages        loops over batches that ranks go through several times
printable       makes text from programs safe to print
printed_stack   the stack in a traceback, or in what faulthandler prints of a crash
raised_error    what an error says that this process has raised: of one that carries another's traceback,
                the other
ran_out         reads from the records of a host's ranks whether one of them ran out of batches before
                others did
rank_list       lists of ranks as text, '0-3,7'
rank_state      what a rank is doing, as seen from outside; shared by agents, diagnosis and views
rank_words      where a rank is now, in words, from its record
reader          reads a record
recent          the newest entries of a ring as plain rows
recorded_frame  one line of a stack
recursion       how deep a RecursionError was, and from where the recursion began
references      follows the references between entries
regular_file    opens files that a rank could have replaced
ring            finds which entries a ring and its parked ops hold, in order, and what is missing between
                them
ring_copy       the entries of a ring as one string of bytes, at the speed of memcpy where nothing is
                wrong with them
run_summary     one line about a run of this host
slices          a part of the ring as columns of words
source          where the bytes of a record come from
stack_file      where a rank writes its stacks when it is asked to, and by which signal it is asked
stop_order      who asked for the end of a run by `distdbg stop`
text            a record as text for people
thresholds      from which age on a rank that others wait for is worth a note, a warning, an error
traceback_text  how an uncaught exception is shown
trusted_path    whether a folder that somebody names is safe to write to
verdict_file    the verdict of a run in its folder, verdict.json
values          what the variables of a program held where it failed
writing         what Python writes into a record
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distdbg.record.decorator import ErrorHandler
    from distdbg.record.decorator import record as record


class _Package(ModuleType):
    """A package whose name is that of a function as well."""

    def __call__(
        self, fn: Callable[..., Any] | None = None, error_handler: ErrorHandler | None = None
    ) -> Callable[..., Any]:
        from distdbg.record.decorator import record as decorate

        return decorate(fn, error_handler) if fn else decorate(error_handler=error_handler)


_package = sys.modules[__name__]
_package.__class__ = _Package
if not TYPE_CHECKING:
    record = _package  # the name that `distdbg` looks up here
