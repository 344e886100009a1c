"""Reads sessions from run folders, running ranks, and dumps and logs of other tools."""
