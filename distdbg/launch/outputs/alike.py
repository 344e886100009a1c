"""What several ranks print alike on one console, folded to one. Pure: the clock is given.

    [ranks 0-1,3] JobAborted at ring.py:5: deadlock, found by the agent
    [ranks 0-1,3] raises.py:4: RuntimeWarning: divide by zero encountered in divide
    [ranks 0-1,3]   return x / total

Warnings, and the one line of a rank that fails because of another, are kept for FOLD_S: others may print
the same. All else goes out at once, behind what its own rank has printed before; between ranks there is no
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from distdbg.errors import format_ranks
from distdbg.launch.outputs.blocks import WARNING, is_of_warning

FOLD_S: Final = 0.25
_MOST_BLOCKS: Final = 64
_MOST_NBYTES: Final = 1 << 16
#: 'PeerLost at train.py:80: rank 2 died', 'KeyboardInterrupt at train.py:80'.
_ONE_LINE: Final = re.compile(rb"[A-Z]\w+ at [^\n]{1,200}:\d+(?:: [^\n]*)?\n")
#: Our own warnings name their rank, which stands in front of the line here.
_LATENT: Final = b": LatentWarning: "
_OWN_RANK: Final = re.compile(rb"(: LatentWarning: |^  )rank \d+:? ", re.MULTILINE)


class Alike:
    """One console."""

    def __init__(self) -> None:
        self._kept: dict[bytes, list[int]] = {}
        """The ranks by the text without its prefix; the oldest first."""
        self._since_s: dict[bytes, float] = {}

    @property
    def is_empty(self) -> bool:
        return not self._kept

    def put(self, rank: int, data: bytes, now_s: float) -> bytes:
        """What can go out now, when a rank prints whole lines."""
        out = b""
        for block in _blocks_of(data, prefix_of(rank)):
            text = _text_of(block, prefix_of(rank))
            if text is None:
                out += self._let_go(rank) + block
                continue
            if rank in self._kept.get(text, ()):  # it prints that again
                out += self._let_go(rank)
            self._kept.setdefault(text, []).append(rank)
            self._since_s.setdefault(text, now_s)
            if len(self._kept) > _MOST_BLOCKS:
                out += self._out([next(iter(self._kept))])
        return out

    def idle(self, now_s: float) -> bytes:
        """What has waited for long enough."""
        return self._out([t for t, since_s in self._since_s.items() if now_s - since_s >= FOLD_S])

    def finish(self) -> bytes:
        return self._out([*self._kept])

    def _let_go(self, rank: int) -> bytes:
        """What that rank has printed before."""
        return self._out([text for text, ranks in self._kept.items() if rank in ranks])

    def _out(self, texts: Iterable[bytes]) -> bytes:
        out = b""
        for text in texts:
            ranks = self._kept.pop(text)
            del self._since_s[text]
            prefix = prefix_of(*ranks)
            out += b"".join(prefix + line for line in text.splitlines(keepends=True))
        return out


def prefix_of(*ranks: int) -> bytes:
    """'[rank 2] ', '[ranks 0-1,3] '."""
    return f"[rank{'s' * (len(ranks) > 1)} {format_ranks(ranks)}] ".encode()


def _blocks_of(data: bytes, prefix: bytes) -> list[bytes]:
    """Each line, and a warning with the lines below it."""
    blocks: list[list[bytes]] = []
    for line in data.splitlines(keepends=True):
        bare = [each[len(prefix) :] for each in blocks[-1]] if blocks else []
        is_more = bare and WARNING.match(bare[0]) and line.startswith(prefix)
        if is_more and is_of_warning(bare, line[len(prefix) :]):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [b"".join(block) for block in blocks]


def _text_of(block: bytes, prefix: bytes) -> bytes | None:
    """Without the prefix of its lines; None for what is not folded."""
    if len(block) > _MOST_NBYTES or not block.endswith(b"\n") or not block.startswith(prefix):
        return None
    text = b"".join(line[len(prefix) :] for line in block.splitlines(keepends=True))
    text = _OWN_RANK.sub(rb"\1", text) if _LATENT in text else text
    return text if WARNING.match(text) or _ONE_LINE.fullmatch(text) else None
