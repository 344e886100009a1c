"""From a session to findings: what is wrong with a job, who is to blame, and what to do. Pure.

What comes in

    session.py ops.py           all that is known of one start of a job: ranks, groups, ops as columns
    load/                       sessions from files, the only readers of any:
        open.py                     any mix of what there is; asks the others
        run_folder.py               our runs: rank_file, tables, clocks, told, witnesses, kept_output
        torch_dumps.py              torch's flight recorder: torch_*, restricted_pickle
        log_files.py ncclras.py     what others printed: log_*

How ops of different ranks hang together

    matching.py                 which collectives are one op
    messages.py                 which messages in flight have met
    comparing.py legality.py    which calls differ, and whether that is wrong
    slip.py                     one call skipped, or one too many
    last_moment.py              the session as it was before the first op failed
    waits.py graph.py           who waits for whom; who can never go on
    chains.py                   who is at the end of all chains of waits
    failures.py endings.py      what ops failed with; how ranks ended, and by whose doing
    last_op.py                  what a rank called last

What is said

    finding.py                  findings, edges, roles, the verdict
    find/                       one file per kind of finding, and what several of them share:
        lateness, own_time          numbers about who comes late
        phrases                     pieces of sentences
    wording.py                  how ranks, places and times are told
    verdict.py                  runs all finders, puts the cause over what follows from it: `diagnose`

Questions of people: `distdbg query` and `distdbg diff`

    query.py op_fields.py       which ops are meant, by which fields
    summary.py bandwidth.py     what they sum up to
    diff.py                     what differs between two runs

Nothing here needs more than the standard library.
"""
