"""Starting ranks: as processes (`spawn`) or as threads (`threads`).

    spawn           torch.multiprocessing's spawn and start_processes
    child           what a spawned process executes; failures: how its end is reported
    parent_death    a child does not outlive its parent
    threads         ranks as threads of one process

Import from the modules: `threads` needs the runtime, `parent_death` nothing.
"""
