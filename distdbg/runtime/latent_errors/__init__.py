"""The search for mistakes that have done no harm yet; how they are told is check/latent.py.

search     starts and stops it for a World
unwaited   asynchronous ops that nobody has waited for, and arrays in two ops at once
blocking   an op that its caller waits for, beside those
abandoned  groups made again and again by one line, and no longer reachable by the program
"""
