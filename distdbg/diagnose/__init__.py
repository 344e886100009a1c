"""From a session to findings: what is wrong with a job, who is to blame, and what to do. Pure.

    session.py ops.py    all that is known of one start of a job
    finding.py           what is said: findings, roles, the verdict
    matching.py          which ops of different ranks are one op
    messages.py          which messages in flight have met
    waits.py graph.py    who waits for whom; what can never go on
    chains.py            who is at the end of all chains of waits
    failures.py endings.py     what ops failed with; how ranks ended, and by whose doing
    last_moment.py       the session as it was before the first op failed
    comparing.py legality.py slip.py     the calls of all ranks side by side
    wording.py           how ranks, places and times are told
    find/                one file per kind of finding
    verdict.py           puts the cause before what follows from it: `diagnose`
    load/                sessions from run folders, living ranks, and what other tools wrote

Only `load` reads files. Nothing here needs more than the standard library.
"""
