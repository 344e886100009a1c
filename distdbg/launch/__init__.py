"""Starting ranks: by a launcher (`run`), as processes (`spawn`) or as threads (`threads`).

    start           a command line to a running job
    flag_table      the flags of `distdbg run`;  flags: reads them;  options, meeting: checks them
    std endpoint nproc numa   values of single flags;  machine: CPUs and GPUs of the host
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
    evidence        what is known of ranks that are gone;  left_record: what their records say
    root_cause      which rank failed first;  first_failure: when that is clear
    report, last_frames, doing   the final report, and what ranks did when a job was stopped

    spawn           torch.multiprocessing's spawn and start_processes
    spawn_stop      what it prints and ends when a signal ends the program
    child           what a spawned process executes; failures: how its end is reported
    parent_death    a child does not outlive its parent
    threads         ranks as threads of one process

Import from the modules: `threads` needs the runtime, `parent_death` nothing.
"""
