"""Finders, one file per kind of finding: `find(session, ...)` returns the findings of that kind.

astray            unmatched calls that were meant for each other, as evidence of findings about waits
calls_of_errors   which call of each rank an error is about that says it of all
cycle_text        the cycle of a deadlock with its waiters, for a first line
dead              ranks that died or failed by themselves
dead_child        ranks that others wait for, asleep, with a child process that has crashed
deadlock          ranks that wait for each other so that none of them can go on, whatever the others do
exit_call         how a program ended the process of a rank itself
diverged          values that should be equal on all ranks are not, by `assert_same` or a check
failed_op         timeouts, lost peers, network, store
first_call        calls that differ at lines which no rank, or one rank alone, has ever called before in
                  the run
forward_alone     ranks that alone ran a forward pass of a DDP model, where the others called something
                  else
handled           ranks that made the op at fault while they handled an error
lateness          how late each rank comes to the ops of a group
latent            latent errors found while the job ran
latent_before     an error of the program after a latent one on the same rank, which may be the reason
leaks             ops that nobody waited for when their rank left, and groups that are never destroyed
left_loop         A rank that left a loop in which the others began one more step, and went on to what
                  comes behind it
manager           A manager and its workers that all wait
message_race      receives from any rank that could have got another message instead
mismatch          ranks that called different things, by their check or by the columns
missing           ranks that others wait for and that will not arrive
missing_records   notes about what the records lack, where that leaves a question open
nan_source        the source of NaN or Inf
no_gradient       hangs and mismatches in DDP whose cause is a parameter that a rank did not use
not_exchanged     A rank in a message with a rank that has exchanged none with it and went on to a
                  collective
not_joined        ranks that never reached the making of the first group, while the others waited there
                  for them
not_mutual        ranks that exchange messages in a cycle
not_member        ranks that called an op on a group that they are not in, which does nothing
not_reduced       steps of a DDP model whose gradients were not reduced, since its .module was called
not_relayed       A rank that hands messages on, one for each that it receives, and once did not
not_sent_there    messages of a cycle of recvs that were never sent
one_more_call     A rank that made a call once more than the others, which have gone on to what comes
                  behind it
one_more_message  A rank in a message of a loop that the other rank has left
order_inversion   deadlocks or mismatches that have not happened yet, as lockdep finds for locks
other_group       whether a call that differs was meant for another group, on which others wait for just
                  that call
other_neighbor    A message to, or from, another neighbor than on all other ranks
out_of_batches    hangs and mismatches whose cause is that a rank had fewer batches than others
own_time          time of a rank in its own code, outside of ops
paired_apart      A collective that went well although one side called it at a line of its own, before a
                  deadlock
parted            wording of where the calls of a rank with fewer ops diverge from those of the others
                  (`divergence`)
phrases           phrases that several finders share
say_calls         calls of one op by several ranks in the words of a mismatch
sent_by_another   a send and a recv that wait for a rank that sleeps, and name other ranks than each other's
sides             the ranks of one op by what they called
skipped_before    A rank that skipped a call earlier, or made one more, and whose next ones fitted by
                  chance
slow_link         slow links and hosts
stale_receive     A message of another size than was expected, in a program that leaves receives without a
                  wait
stall             ranks that others wait for and that may still arrive
stopped           jobs that were stopped from outside
straggler         ranks that are late again and again, so that all others wait for them
stuck             alive and stopped, holding the GIL, busy, asleep
suspicion         suspicions of the check
telling_site      which line of a call's stack tells it from the rank's other calls
told_difference   what a mismatch is about that ranks have told themselves
thread_error      ranks that others wait for and that have lost a thread
two_threads       A mismatch where two threads of a rank issue ops on one group at one time
unanswered        A rank that answers each message, and waits for the next one without an answer to the last
unlike_models     models that torch's DDP refuses, as their numbers of parameters differ
unsent            messages that are waited for and were never sent, by ranks in a collective
used_wrong_group  A call that was carried out on one group, where the program's line called it on another
                  one elsewhere
waits_to_join     ranks that wait in init_process_group for others, by the notes of their calls
went_on           A rank that went on without a call that had always followed the one before, as it did on
                  the others
who_chose         the one rank whose group at a line is another one than that in which the others meet
                  there
"""
