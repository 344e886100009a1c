"""The per-host process: watches the ranks of its host from outside and steers them.

It tails their records, sees them start, stop, stick and die, takes their stacks, writes the control
page, answers the local API, and talks to the agents of the job's other hosts. The job neither needs it
nor waits for it.
"""
