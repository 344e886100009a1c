"""A torch Store as a Store of ours: ranks that met through torch need no second meeting place.

torch's TCPStore has one connection per handle, and an op that waits there keeps all threads of the process
from it. So a wait is made of questions here (Store.wait), which also end when the job is aborted; what is
sent to torch's store itself is answered at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Self, TypeVar, cast

from distdbg.errors import DistNetworkError, DistStoreError
from distdbg.runtime.store import Store
from distdbg.runtime.store.base import Value, check_amount, check_key, check_keys, to_bytes

Method = TypeVar("Method", bound=Callable[..., Any])


def _translated(method: Method) -> Method:
    """Errors of torch's store as ours: what waits for a store knows only those."""

    @wraps(method)
    def call(self: TorchStore, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except (DistStoreError, DistNetworkError):
            raise
        except RuntimeError as error:  # torch.distributed.DistError is one
            kind = DistNetworkError if "Network" in type(error).__name__ else DistStoreError
            first_line = str(error).partition("\n")[0]
            raise kind(f"{self._label()}: {method.__name__}: {first_line}") from error

    return cast(Method, call)


class TorchStore(Store):
    """Keys and values are in the torch Store given; its timeout stays as it is."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._theirs = store

    @_translated
    def set(self, key: str, value: Value) -> None:
        self._theirs.set(check_key(key), to_bytes(value))

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._read(key)

    @_translated
    def _read(self, key: str) -> bytes:
        return bytes(self._theirs.get(key))

    @_translated
    def add(self, key: str, amount: int) -> int:
        return int(self._theirs.add(check_key(key), check_amount(amount)))

    @_translated
    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._theirs.check(check_keys(keys)))

    @_translated
    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        return bytes(
            self._theirs.compare_set(check_key(key), to_bytes(expected), to_bytes(desired))
        )

    @_translated
    def delete_key(self, key: str) -> bool:
        return bool(self._theirs.delete_key(check_key(key)))

    @_translated
    def list_keys(self) -> list[str]:
        ask = getattr(self._theirs, "list_keys", None)
        if ask is None:
            self._lacks("list_keys")
        return list(ask())

    def clone(self) -> Self:
        copy = getattr(self._theirs, "clone", None)
        twin = type(self)(self._theirs if copy is None else copy())
        twin._timeout_s = self._timeout_s
        return twin

    def _label(self) -> str:
        return f"store torch.distributed.{type(self._theirs).__name__}"

    def __repr__(self) -> str:
        return f"TorchStore({self._theirs!r})"
