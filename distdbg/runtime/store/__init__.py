"""Stores: how the ranks of a run find each other. See base.py for what a store is.

base.py    Store, and everything that follows from its primitives
table.py   the contents of an in-memory store, pure
hash.py    HashStore: threads of one process          prefix.py  PrefixStore: a part of another
store tcp.py     TCPStore: one rank serves                   listen.py  its port, and who else
holds it file.py    FileStore: a shared file                    file_log.py, file_users.py  its
bytes, its users
"""

from distdbg.runtime.store.base import Store
from distdbg.runtime.store.file import FileStore
from distdbg.runtime.store.hash import HashStore
from distdbg.runtime.store.prefix import PrefixStore
from distdbg.runtime.store.tcp import TCPStore

__all__ = ["FileStore", "HashStore", "PrefixStore", "Store", "TCPStore"]
