"""Starting ranks: by a launcher (`run`), as processes (`spawn`) or as threads (`threads`).

    start           a command line to a running job
    flag_table      the flags of `distdbg run`;  flags: reads them;  options, rendezvous_settings: checks them
    output_streams endpoint nproc numa   values of single flags;  machine: CPUs and GPUs of the host
    environment     what one rank is started with;  run_path: for --run-path
    own_environment what is left of it for a job that a rank starts

    warden          starts, watches and ends the ranks; warden_process: what it runs;  warden_wire
    descendants     all processes started below a process, and how to end them;  ended: how a child ended
    memory          tells an OOM kill from another SIGKILL;  ports: one held for who listens later

    run             the launcher's process;  job: its part in a job, round by round
    own_host        what a launcher keeps on its host across restarts: folder, outputs, agent
    running         one start of the ranks as a launcher sees it;  attempt: as processes
    agent_link      starts and informs the agent;  start_facts: what all launchers agree on
    decide          what to do next;  signals: what ends the launcher;  events: lines for programs
    stale_sockets   what a killed agent leaves

    outputs/        what ranks print: kept, shown line by line, selected
    evidence        what is known of ranks that are gone;  left_record, record_facts: what their records say
    root_cause      which rank failed first;  first_failure: when that is clear
    report, last_frames, rank_activity   the final report, and what ranks did when a job was stopped

    spawn           torch.multiprocessing's spawn and start_processes
    spawn_stop      what it prints and ends when a signal ends the program
    child           what a spawned process executes; failures: how its end is reported
    parent_death    a child does not outlive its parent
    threads         ranks as threads of one process

Import from the modules: `threads` needs the runtime, `parent_death` nothing.

cause                why an attempt of a job failed, in three lines, and what all attempts that failed
                     have in common
console              the launcher's terminal, lent to the debugger of a rank that stops
ddp_errors           errors of torch's DDP behind which the records show more than torch's text does
diagnosis            what `distdbg analyze` finds in the records of a job that failed, for the launcher's
                     report
exports              what the agents of a job export, and where
final_report         what a launcher says of attempts that have failed
hints                what to do about a root cause, in one line
joining_ranks        ranks that wait in init_process_group when a signal ends the job: no record says so yet
killed_at_once       whether all ranks of a launcher were killed in one blow from outside
last_seen            where a rank was that others waited for, as the agent of its host saw it last
late_ranks           what is known of ranks for which others waited until they gave up
memory_limit         the memory limit of the ranks of this launcher
output_streams       which of the two output streams
rank_activity        what the ranks of this host are doing, by their records
rendezvous           how the launchers of a job find each other
rendezvous_settings  where the launchers of a job meet
report_details       what a launcher's report says below its first lines
report_end           when the first rank failed, and of one that was killed what is known of its memory
report_layout        how a report looks
stopped_ranks        which ranks are at the prompt of a debugger
"""
