"""The numbers of the ranks of a host, for metrics: read in the agent's loop, put together beside it.

checks    what a rank's words say that the check found
ranks     one rank as facts, from its seat and its record
findings  findings of the diagnosis, counted by kind
job       the sums over all hosts, at the root: other hosts are asked in a thread
metering  what one agent has of it: facts from the loop, kept for a moment, collected in another thread
targets   where metrics are served, of all running jobs of this user here
runs      the same without an agent: from records alone, also of finished runs
exporter  the server of `distdbg exporter`
one_run   metrics of one run from its records alone
sending   writes metrics to a text file and to a Pushgateway, every 15 seconds and at the end
serving   the agent's HTTP server
"""
