"""What this machine decides about how bytes move: measured once, kept for the user, agreed by a group.

    profile        the plain values, and what they mean
    current        the profile of this host, as its variables and the kept one say
    profile_file   the file of a measured profile: for which machine it holds, and whether it can be trusted
    machine_cpus   the CPUs of this machine, also for a rank that is bound to one
    rules          what DISTDBG_TUNE says
    trials         which ops are timed in which variants, in which order
    ranks          the processes that time them
    choose         from the times to a profile
    background     when it is measured without being asked
    tuner          all of it: measures and keeps; `background` starts it by `python -m`

A rank loads `current` and what it needs; the others run in a process of their own.
"""
