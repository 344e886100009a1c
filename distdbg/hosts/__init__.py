"""The tree of the agents of a job: rows go up to the root, orders go down to all hosts.

place, loop                 this host's place in the tree: a node, and the thread that moves bytes over links
node                        all of it for one agent, without a socket or a clock. Pure
job_view                    what a node knows of the job
parent_choice               parents and children, and substitutes for a parent that is gone. Pure
status_rows, columns        rows of ranks and hosts; their changes as bytes, column by column. Pure
updates, gather             what goes up a link and when; which link to trust for each host. Pure
accounts                    where the ranks of each host wait, on its way to the root. Pure
orders                      orders to all hosts. Pure
other_hosts                 holds the clocks of all hosts while a rank of any host is in a debugger. Pure
tail_sampling               ops of which all hosts keep the spans, on their way through the tree. Pure
clock, clock_words          how far this host's clock is from the root's, pure; into the records
pipes, pipe_ends            connections with the agents of other hosts; pipes is pure
handshake, messages, links  how two ends prove the token; what goes over a link; one link on a socket
finding                     where the other agents are, by the job's store
"""
