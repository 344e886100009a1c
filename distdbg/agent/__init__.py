"""The per-host process: watches the ranks of its host from outside and steers them.

It tails their records, sees them start, stop, stick and die, takes their stacks, writes the control
page, answers the local API, and talks to the agents of the job's other hosts. The job neither needs it
nor waits for it.

    main            the command line;  host_agent: one thread, a tick ten times a second
    tail            follows the records;  lives, processes: what the kernel says
    roster, seat    all ranks of the host, one rank;  status: the row that others see
    closer_look, stuck   at ranks that do not move;  take_stacks, stacks, merge: where they are
    findings        what ranks wrote of errors;  policy: what may end the job
    steering        the control page, here and through the tree on all hosts
    tree/           the agents of all hosts of a job
    launcher_orders what the launcher tells
    exporting, metering/   what goes to Prometheus and other tools, where that is asked for
    protocol, api, methods, plain   the local API;  client, live_runs: its other end
"""
