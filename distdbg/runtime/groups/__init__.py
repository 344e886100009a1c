"""ProcessGroup, and how one is made.

group          ranks that communicate; the one place where their ops are issued
op_methods     the ops as methods of a group, under torch's names: of ours, and of torch's on our backend
group_methods  what a group of ours is without a way to carry out an op
group_state    the ranks, names and store of a group: all that most of the package needs of one
group_argument what functions take as `group=`, and which rank of it is meant
coalesced      several ops of a group, collected and started together
creation       creates a group: its store, the meeting of its members, its engine
group_join     all members register in the store, or every one learns who is missing
leaving        what a rank says to the others when it leaves a group
membership     whether all ranks make the same groups in the same order
levels         the debug level of all groups of a rank: how much of each op is compared
"""
