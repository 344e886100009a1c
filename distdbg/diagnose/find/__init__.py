"""Finders, one file per kind of finding: `find(session, ...)` returns the findings of that kind.

crossed_calls          unmatched calls that were meant for each other, as evidence of findings about waits
dead                   ranks that died or failed by themselves
dead_child             ranks that others wait for, asleep, with a child process that has crashed
deadlock               ranks that wait for each other so that none of them can go on, whatever the others do
diverged               values that should be equal on all ranks are not, by `assert_same` or a check
exit_call              how a program ended the process of a rank itself
failed_op              timeouts, lost peers, network, store
first_call             calls that differ at lines which no rank, or one rank alone, has ever called before in
                       the run
forward_alone          ranks that alone ran a forward pass of a DDP model, where the others called something
                       else
while_handling_error   ranks that made the op at fault while they handled an error
lateness               how late each rank comes to the ops of a group
latent                 latent errors found while the job ran
latent_before          an error of the program after a latent one on the same rank, which may be the reason
leaks                  ops that nobody waited for when their rank left, and groups that are never destroyed
message_race           receives from any rank that could have got another message instead
mismatch               ranks that called different things, by their check or by the columns
mismatch_calls         the calls of a mismatch: which they are, by sides, and in words
missing                ranks that others wait for and that will not arrive
missing_records        notes about what the records lack, where that leaves a question open
nan_source             the source of NaN or Inf
no_gradient            hangs and mismatches in DDP whose cause is a parameter that a rank did not use
no_room                a message that is longer than a recv of gloo has room for, which ends its rank
not_exchanged          a rank in a message with a rank that has exchanged none with it and went on to a
                       collective
not_joined             ranks that never reached the making of the first group, while the others waited there
                       for them
not_member             ranks that called an op on a group that they are not in, which does nothing
not_mutual             ranks that exchange messages in a cycle
not_reduced            steps of a DDP model whose gradients were not reduced, since its .module was called
not_relayed            a rank that hands messages on, one for each that it receives, and once did not
one_more_message       a rank in a message of a loop that the other rank has left
order_inversion        deadlocks or mismatches that have not happened yet, as lockdep finds for locks
other_group            whether a call that differs was meant for another group, on which others wait for just
                       that call
other_neighbor         a message to, or from, another neighbor than on all other ranks
out_of_batches         hangs and mismatches whose cause is that a rank had fewer batches than others
own_time               time of a rank in its own code, outside of ops
paired_apart           a collective that went well although one side called it at a line of its own, before a
                       deadlock
diverging_calls        wording of where the calls of a rank with fewer ops diverge from those of the others
                       (`divergence`)
phrases                phrases that several finders share
sent_by_another        a send and a recv that wait for a rank that sleeps, and name other ranks than each
                       other's
skipped_calls          ranks that skipped a call, now or earlier, by what their own past says
slow_link              slow links and hosts
stale_receive          a message of another size than was expected, in a program that leaves receives without
                       a wait
stall                  ranks that others wait for and that may still arrive
stopped                jobs that were stopped from outside
straggler              ranks that are late again and again, so that all others wait for them
stuck                  alive and stopped, holding the GIL, busy, asleep
suspicion              suspicions of the check
thread_error           ranks that others wait for and that have lost a thread
two_threads            a mismatch where two threads of a rank issue ops on one group at one time
unanswered             ranks that owe an answer to a message: of a manager and its workers, or by habit
uneven_calls           ranks that made a call once more than the others, or left a loop one step early
unsent                 messages that are waited for and were never sent
used_wrong_group       a call that was carried out on one group, where the program's line called it on another
                       one elsewhere
waits_to_join          ranks that wait in init_process_group for others, by the notes of their calls
"""
