"""The diagnosis: from a session to findings, with cause, consequences and hint. Pure.

Input

    session.py ops.py           one start of a job: ranks, groups, ops as columns
    load/                       reads files into sessions; nothing else here reads files:
        open.py                     any mix of files and folders; calls the others
        run_folder.py               our runs: rank_file, tables, clocks, told, witnesses, kept_output
        torch_dumps.py              torch's flight recorder: torch_*, restricted_pickle
        log_files.py ncclras.py     output of other tools: log_*

How ops of different ranks belong together

    matching.py                 which collectives are one op
    messages.py                 which messages in flight have met
    unmatched.py wrong_tags.py  messages that never met, and which side is wrong
    comparing.py legality.py    which calls differ, and whether that is an error
    shifted_calls.py            a rank that skipped calls or made extra ones
    last_moment.py              the session as it was before the first op failed
    waits.py graph.py           who waits for whom; deadlocks
    chains.py                   the ranks at the ends of chains of waits
    failures.py endings.py      errors of ops; how ranks ended, and whether by their own fault
    last_op.py                  what a rank called last

Output

    finding.py                  findings, edges, roles, the verdict
    verdict_document.py         a verdict of the JSON that was made of one
    find/                       one file per kind of finding, and what several of them share:
        lateness, own_time          how late ranks are, in numbers
        phrases                     pieces of sentences
    wording.py                  how ranks, places and times are written
    verdict.py                  `diagnose`: runs all finders, puts the cause above its consequences

Queries: `distdbg query` and `distdbg diff`

    query.py op_fields.py       expressions over ops, and the fields they use
    summary.py bandwidth.py     counts, times and bandwidths of ops
    diff.py                     differences between two runs

Nothing here needs more than the standard library.

alike         whether two texts tell of the same mistake
as_of         the session as it was at an earlier moment
counting      totals of the ops of one kind on one group, from the counters of many ranks
debugged      ranks at the prompt of a debugger
divergence    where the calls of two ranks on a group diverge, when one of them made fewer
doing         what a rank that others wait for is doing
happened      happened-before order of ops, by vector clocks over collectives and messages
headline      the first word of a report
stops         what stopped a job from outside, and when
other_half    which send a recv took, and which recv took a send
traits        what programs choose by, of findings, facts and stacks
"""
