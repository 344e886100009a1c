"""What ranks print: into files, onto the console, or both; never mixed within a line.

    choices     which stream of which rank goes where, and what its lines begin with. Pure
    lines       bytes of one stream to whole lines. Pure
    folders     the log folders on disk
    sinks       where lines go: the console, a file of selected lines
    tail        follows one log file into one sink
    alike       equal warnings and last lines of several ranks to one. Pure
    blocks      bytes of a stderr that is kept in no file to whole lines and tracebacks. Pure
    pipe_tail   ... from a pipe into one sink
    outputs     all of it for one launcher, with its thread

    kept        finds the files of a run;  timed: their lines, with times;  stamps: those that lines bring
    merged      lines of many ranks to one sequence, equal ones folded. Pure

A stream that is teed is written by its rank to a file, and read there. So a console that nobody reads
never makes a rank wait, and what a rank printed before it died is there however it died.

losses    files that a launcher could not write
tee_pipe  the pipe into which a rank prints what is kept and shown
"""
