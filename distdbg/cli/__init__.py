"""The command `distdbg`: a table of commands, one file each. stdout is data, stderr is talk.

main       looks a command up and runs it
commands   the table
run ...    one file for each command, named as the command
"""
