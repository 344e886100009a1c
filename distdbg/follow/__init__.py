"""The ranks of one host, seen from outside: their records, their processes, their stacks.

tail            follows one record
roster          all ranks of the host in one start;  watched_rank: one of them
status          the row of a rank that others see
processes       what the kernel reports of a process;  process_ends: how it ended
stuck           a look at a rank without progress
stacks, merge   stacks of threads as data; those of many ranks as one tree
joining         ranks that wait in init_process_group, by the notes of their calls
findings        what ranks wrote of errors
answers         answers about all of it, as plain values for JSON

Whoever looks at a host uses it: its agent, an exporter of metrics, a dashboard of a job that has no agent.
"""
