"""Stores: how the ranks of a run find each other.

base.py      Store, and everything that follows from its primitives
table.py     the contents of an in-memory store, pure
hash.py      HashStore: threads of one process
prefix.py    PrefixStore: a part of another store
tcp.py       TCPStore: one rank serves; tcp_errors.py what users are told when that fails
server.py    the servers of this process; listen.py their ports, and who else holds one
file.py      FileStore: a shared file; log_file.py the open file
file_log.py  its bytes; file_users.py its users, and when it is stale; both pure
timeouts.py  timeouts and deadlines
"""

from distdbg.runtime.store.base import Store
from distdbg.runtime.store.file import FileStore
from distdbg.runtime.store.hash import HashStore
from distdbg.runtime.store.prefix import PrefixStore
from distdbg.runtime.store.tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
