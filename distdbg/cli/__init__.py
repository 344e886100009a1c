"""The command `distdbg`: a table of commands, one file each. stdout is data, stderr is talk.

main            looks a command up and runs it
commands        the table
analyze         what went wrong with a job: the cause, its ranks and lines, and what to do
attach          a debugger on a rank of a running job, from another terminal or host
break_          stop ranks of a running job at ops, without a change of its code
certificate     what a client of /metrics has to trust under DISTDBG_TLS=1, in PEM
chosen_run      which run a command line means
clock_words     why the clock of a job stands, in words
diff            what got slower, what is called more or less often, what changed its order
exec_           the value of an expression on ranks of a running job, equal values once
export          a run in another tool's format, to look at it there
exporter        metrics of runs that are over or have no agent that serves them, for Prometheus
logs            what the ranks of a run printed, merged by time; equal lines once, with their ranks
pause           `distdbg pause` and `distdbg resume`
plan            how an op would be carried out on a group, and how long it would take
ps              the running jobs of this user on this host, and the state of each rank
query           the ops of a run that fit an expression, or what they sum up to
rank_debuggers  the debuggers of a run's ranks
record          print what the ranks of a run have recorded
replayed_run    what is left of a job, as a feed for the dashboard
resume          let the deadlines of a paused job run on
run             start, watch, restart and clean up the ranks of a job
stacks          where each rank of a running job is, on all its hosts, without asking the ranks
stop            end a running job
table           aligned columns for a terminal, without lines around them
top             a job while it runs, or what is left of one, in a dashboard
tune            what this machine decides about how data moves, measured once and kept for you
run ...    one file for each command, named as the command
"""
