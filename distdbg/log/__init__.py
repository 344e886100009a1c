"""The log of a rank: Python loggers below `distdbg`, with the rank in each line.

logs        get_logger; the level from the environment; who knows the rank of a thread
log_levels  LogLevel and DebugLevel, and how the second raises the first
"""
