"""The agent: the process per host that watches its ranks from outside and controls them.

It follows their records, sees them start, hang and die, takes their stacks, writes the control
page, answers the local API, and talks to the agents of the job's other hosts. The job neither needs it
nor waits for it.

    main            the command line;  host_agent: one thread, a tick ten times a second
    tail            follows the records;  process_ends, processes: what the kernel reports
    roster, watched_rank    all ranks of the host, one rank;  status: the row that others see
    closer_look, stuck   at ranks without progress;  take_stacks, stacks, merge: where they are
    findings        what ranks wrote of errors;  policy: which verdicts abort the job
    steering        the control page, here and through the tree on all hosts
    tree/           the agents of all hosts of a job
    launcher_orders messages of the launcher
    exporting, metering/   metrics and traces, where asked for
    protocol, api, methods, op_json   the local API;  client, live_runs: its other end

addresses, ways    addresses of agents on the command line, and connections to them
arguments          arguments of a request, checked
blockers           what keeps a process asleep, as Linux shows it
board              answers to dashboards about the ranks of one host, from their records, on request
breakpoint_orders  breakpoints at an agent
feed               the parts of a dashboard's live feed
host               what the parts of an agent see of it
gpus               GPU use of processes of this host, from NVIDIA's management library; empty without it
judging            the diagnosis inside the agent
live_feed          the data of a dashboard for a running job, from its agents
op_json            ops and groups as plain values that JSON can hold, as the API gives them
other_hosts        holds the clocks of all hosts while a rank of any host is in a debugger
pipes              connections that become pipes
process_ends       ends of processes
proxy              two sockets joined into one connection, in the agent's loop
races              looks for message races while the job runs
sockets            the other end of a TCP connection that a process reads from
ssh                connects to an agent through ssh
tracing            what an agent sends to an OpenTelemetry collector
watched_rank       one rank of this host
"""
