"""From a session to findings: what is wrong with a job, who is to blame, and what to do. Pure.

    session.py ops.py    all that is known of one start of a job
    finding.py           what is said: findings, roles, the verdict
    matching.py          which ops of different ranks are one op
    messages.py          which messages in flight have met
    waits.py graph.py    who waits for whom; what can never go on
    find/                one file per kind of finding
    verdict.py           puts the cause before what follows from it: `diagnose`
    load/                sessions from run folders, living ranks, and what other tools wrote

Only `load` reads files. Nothing here needs more than the standard library.
"""
