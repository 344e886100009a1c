"""Reads sessions from run folders, running ranks, and dumps and logs of other tools.

clocks             puts the times of all ranks on one clock
kept_output        the last output of ranks, where the launcher kept it
log_blocks         messages of several lines in logs
log_deaths         findings from logs about ranks that ended or are stuck
log_differences    findings from logs about ranks that called something else, or nothing, where others wait
log_facts          a fact from one line of a log, before it becomes part of a finding
log_files          reads logs of a job as a session
log_findings       from facts in logs to findings
log_lines          lines of logs, with what their beginnings say
log_shapes         the table of log messages with a meaning
log_wording        wording of findings from logs
ncclras            reads the output of `ncclras`, text or JSON
open               opens any mix of files and folders of a job as sessions, one per start
proof              the deadlock that an agent proved while the job ran, from verdict.json in the run's folder
rank_file          reads one record as a rank of a session
restricted_pickle  reads untrusted pickles of plain values
run_folder         reads sessions from our runs
tables             the tables of a session while it is filled
reported           errors and findings that ranks wrote into their records, as JSON
torch_batches      joins the entries of ops that torch wrote as several (coalesced batches)
torch_dump         reads one file of torch's flight recorder
torch_dumps        reads dumps of torch's flight recorder, of NCCL or gloo, as a session
torch_forms        the form of an op in torch's dumps, and the count that all ranks must have alike
torch_groups       the process groups in the dumps of a torch job: a table by (rank, name)
torch_messages     numbers the messages of a torch job, so that a send and its recv have one seq
torch_names        torch's names of ops and files, translated into ours
torch_stalls       ops in torch's dumps that all ranks have called and that have not ended
witnesses          what launcher and agents saw of the ranks
"""
