"""Hints that only the source gives, by what they go by. `source_hint` says in which order they are asked.

branches    a condition that some ranks took and others did not, an exit that skips a call
case        what each hint is asked about: the finding, the stacks with their source
array_origin the line of a function that makes the array whose size differs
clocks      a condition or a loop that each rank decides by its own clock
data_flow   where an argument comes from: assignments, attributes, what functions return, the callers
data_origin which function of the program made the data that a line has failed with
dtypes      an array whose dtype nobody has given
files       a file that ranks wait for, which another one makes behind its op
joining     where init_process_group gets a number from that does not fit the job
parameters  why a rank did not use a part of its model: the condition under which the model calls it
left_behind a function or a loop that some ranks have left, a lock file that nobody removes
patterns    one note of the stack that says it all: the loop that a rank left, a file that it waits for
peers       what a loop goes over whose rounds exchange messages, and lacks the rank that waits
randomness  a condition or a loop that random numbers decide, which are not the same on all ranks
rank_values the line that gives a call what depends on the rank
retries     a rank that repeats its calls, in a loop that tries again after an error
set_orders  a loop over a set of texts, whose order is another one in each process
skipped_ends a path past the call that ends something: task_done() of a queue, the cancel of a timer
tags        what the tag of a message is made from, which is another one than that line has used before
taken_files a file that another rank has renamed or removed first, as they share its name
unsynced    gradients that a rank reduces less often, since it alone decides when no_sync() holds
values      a variable that differs between ranks as their calls do, and where it gets its value
waits       a lock that the rank holds itself, a timer that it did not cancel
"""
