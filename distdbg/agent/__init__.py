"""The agent: the process per host that watches its ranks from outside and controls them.

It follows their records, sees them start, hang and die, takes their stacks, writes the control
page, answers the local API, and talks to the agents of the job's other hosts. The job neither needs it
nor waits for it.

    main            the command line;  host_agent: one thread, a tick ten times a second
    tail            follows the records;  lives, processes: what the kernel reports
    roster, seat    all ranks of the host, one rank;  status: the row that others see
    closer_look, stuck   at ranks without progress;  take_stacks, stacks, merge: where they are
    findings        what ranks wrote of errors;  policy: which verdicts abort the job
    steering        the control page, here and through the tree on all hosts
    tree/           the agents of all hosts of a job
    launcher_orders messages of the launcher
    exporting, metering/   metrics and traces, where asked for
    protocol, api, methods, plain   the local API;  client, live_runs: its other end
"""
