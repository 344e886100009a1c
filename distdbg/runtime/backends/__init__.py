"""What moves the bytes of a group: our CPU engine (cpu.py), and backends registered by others.

registry.py knows the names, foreign.py makes an object with torch's methods look like an Engine.
"""
