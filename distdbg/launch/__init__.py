"""Starting ranks: by a launcher (`run`), as processes (`spawn`) or as threads (`threads`).

    start           a command line to a running job
    flag_table      the flags of `distdbg run`;  flags: reads them;  options, meeting: what they come to
    std endpoint nproc numa   values of single flags;  machine: what they ask of the host
    environment     what one rank is started with;  run_path: for --run-path
    own_environment what is left of it for a job that a rank starts

    warden          starts, watches and ends the ranks; warden_process: what it runs;  warden_wire
    descendants     all that was ever started below a process, and its end;  ended: how a child ended
    memory          a kill for memory told from a person's;  ports: one held for who listens later

    run             the launcher's process;  job: its part in a job, round by round
    own_host        what it keeps there from start to start: folder, outputs, agent
    running         one start of the ranks as a launcher sees it;  attempt: as processes
    agent_link      the agent, told of it;  start_facts: what all launchers agree on
    decide          what to do next;  signals: what ends the launcher;  events: lines for programs
    stale_sockets   what a killed agent leaves

    outputs/        what ranks print: kept, shown line by line, selected
    evidence        what is known of ranks that are gone;  left_record: what their records say
    root_cause      who of them was the first;  first_failure: when that is clear
    report, last_frames, doing   how it is said, and what ranks did when a job was stopped

    spawn           torch.multiprocessing's spawn and start_processes
    spawn_stop      what it prints and ends when a signal ends the program
    child           what a spawned process executes; failures: how its end is reported
    parent_death    a child does not outlive its parent
    threads         ranks as threads of one process

Import from the modules: `threads` needs the runtime, `parent_death` nothing.
"""
