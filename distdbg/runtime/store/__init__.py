"""Stores: how the ranks of a run find each other.

base        Store, and everything that follows from its primitives
table       the contents of an in-memory store, pure
hash        HashStore: threads of one process
prefix      PrefixStore: a part of another store
tcp         TCPStore: one rank serves
server      the servers of this process
file        FileStore: a shared file
file_log    the bytes of that file; pure
timeouts    timeouts and deadlines
holder      names the process that holds a TCP port of this host, for error messages
listen      the listening socket of a TCPStore server
log_file    the open file of a FileStore, replayed; locking, writing, and coming and going
names       addresses of a host name, without waiting for a resolver that does not answer
tcp_errors  errors of a TCPStore that cannot be reached, or is gone
"""

from distdbg.runtime.store.base import Store
from distdbg.runtime.store.file import FileStore
from distdbg.runtime.store.hash import HashStore
from distdbg.runtime.store.prefix import PrefixStore
from distdbg.runtime.store.tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
