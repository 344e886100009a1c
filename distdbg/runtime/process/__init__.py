"""The life of a rank: what it knows, from init_process_group to its last words.

world          the groups of one rank; the current World of a thread
rank_context   what a rank's stores, groups and ops share: time, record, debug level
init           init_process_group
destroy        destroy_process_group
agent_start    starts the agent of this host
control_page   opens and closes the control page of this host
debuggable     lets debuggers attach, where the job was started with --debuggable
debugger_seam  the seam to the debugger, which is above the runtime and loaded only where there is a
               reason to stop
stack_signal   lets an observer dump this rank's stacks without its help
exit_reason    publishes why a rank leaves, before it does
child_error    says what the function of a child process raised, where only an exit code would be left
uncaught       prints an uncaught exception as one block, in one write
"""
