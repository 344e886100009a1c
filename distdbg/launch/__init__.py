"""Starting ranks: by a launcher (`run`), as processes (`spawn`) or as threads (`threads`).

A command line to a running job

    start            a command line to a running job;  run_path: for --run-path
    flag_table       the flags of `distdbg run`;  flags: reads them
    options, rendezvous_settings    checks them
    output_streams, endpoint, nproc, numa, exports    values of single flags
    machine          CPUs and GPUs of the host
    environment      what one rank is started with
    own_environment  what is left of it for a job that a rank starts

Processes

    warden           starts, watches and ends the ranks;  warden_process: what it runs;  warden_wire: messages
    descendants      all processes started below a process, and how to end them;  ended: how a child ended
    parent_death     a child does not outlive its parent
    memory           tells an OOM kill from another SIGKILL;  ports: one held for who listens later
    stale_sockets    what a killed agent leaves

One launcher

    run              the launcher's process;  job: its part in a job, round by round
    rendezvous/      how the launchers of a job find each other;  start_facts: what they agree on
    own_host         what a launcher keeps on its host across restarts: folder, outputs, agent
    agent_link       starts and informs the agent
    running          one start of the ranks as a launcher sees it;  attempt: as processes
    decide           what to do next;  signals: what ends the launcher;  events: lines for programs
    outputs/         what ranks print: kept, shown line by line, selected
    console          the launcher's terminal, lent to the debugger of a rank that stops

Why a job ended

    evidence         what is known of ranks that are gone;  left_record, record_facts: what their records say
    root_cause       which rank failed first;  first_failure: when that is clear
    diagnosis        what `distdbg analyze` finds in the records of a job that failed
    rank_activity    what ranks did when a job was stopped;  stopped_ranks: which are at a prompt
    last_seen        where a rank was that others waited for, as the agent of its host saw it last
    late_ranks       ranks for which others waited until they gave up, or until a signal ended the job
    ddp_errors       errors of torch's DDP behind which the records show more than torch's text does
    hints            what to do about a root cause, in one line
    report           what a launcher says of one attempt;  report_details: below its first lines;
                     report_layout: how it looks
    by_verdict       an agent's verdict when the job is over: what the records show of it, who failed by it
    cause            why an attempt failed, in three lines, and what all attempts that failed have in common
    final_report     what a launcher says of attempts that have failed

Without a launcher

    spawn            torch.multiprocessing's spawn and start_processes
    spawn_stop       what it prints and ends when a signal ends the program
    child            what a spawned process executes;  failures: how its end is reported
    threads          ranks as threads of one process

Import from the modules: `threads` needs the runtime, `parent_death` nothing.
"""
