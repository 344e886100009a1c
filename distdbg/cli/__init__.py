"""The command `distdbg`: a table of commands, one file each. stdout is data, stderr is talk."""
