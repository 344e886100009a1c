"""What async_op=True returns, and who waits for it.

work           Work: an op that was started
future         Future: a value that comes later
watcher        a thread that notices ended ops that no thread waits for
waits          records which threads wait in Python for an op in flight
"""
