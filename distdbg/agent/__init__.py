"""The agent: the process per host that watches its ranks from outside and controls them.

It follows their records, sees them start, hang and die, takes their stacks, writes the control
page, answers the local API, and talks to the agents of the job's other hosts. The job neither needs it
nor waits for it.

    main            the command line;  host_agent: one thread, a tick ten times a second
    context         what the parts of an agent see of it
    closer_look     at ranks without progress;  blockers: what keeps a process asleep, as Linux shows it
    take_stacks     asks a rank for its stacks
    judging/        the diagnosis inside the agent;  policy: which verdicts abort the job
    races           looks for message races while the job runs
    steering        the control page, here and through the other agents on all hosts
    launcher_orders messages of the launcher
    api, methods    the local API;  breakpoint_orders: breakpoints at an agent
    pipes           connections that become pipes;  proxy: two sockets joined into one connection
    metering/       the metrics of this host and of the job

What it shares with others has rooms of its own: `follow` (the ranks of a host), `hosts` (between agents),
`client` (the other end of the API), `export` (how metrics and traces get out). None of them imports it.
"""
