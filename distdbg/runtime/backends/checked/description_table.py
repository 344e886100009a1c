"""The descriptions of all ranks of one exchange: compares what is sent with what is expected."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt

#: A line or a function is cut here, so that a description has a longest length.
MAX_WORDS = 200
_FACTS_NBYTES = 4096


class DescriptionTable:
    """The descriptions of one exchange: this rank's, and room for those of all."""

    __slots__ = ("_size", "all", "mine", "row_nbytes")

    def __init__(self, description: bytes, size: int) -> None:
        # As long on all ranks: two numbers for each rank, and the words.
        self.row_nbytes = _FACTS_NBYTES + (2 * 21 * size + 63) // 64 * 64
        self._size = size
        self.mine: npt.NDArray[np.uint8] = np.zeros(self.row_nbytes, np.uint8)
        self.mine[: len(description)] = np.frombuffer(description[: self.row_nbytes], np.uint8)
        self.all: npt.NDArray[np.uint8] = np.zeros(self.row_nbytes * size, np.uint8)

    def rows(self) -> list[bytes]:
        """The description of each rank."""
        row = self.row_nbytes
        return [
            self.all[r * row : (r + 1) * row].tobytes().rstrip(b"\0") for r in range(self._size)
        ]

    def fits(self) -> bool:
        """Whether each rank sends to each other what that one expects."""
        calls = [json.loads(text) for text in self.rows()]
        return all(
            calls[i]["sends"][j] == calls[j]["expects"][i]
            for i in range(self._size)
            for j in range(self._size)
        )
