"""What several ranks print alike on one console, folded to one. Pure: the clock is given.

    [ranks 0-1,3] JobAborted at ring.py:5: deadlock, found by the agent
    [ranks 0-1,3] raises.py:4: RuntimeWarning: divide by zero encountered in divide
    [ranks 0-1,3]   return x / total

Warnings, tracebacks, and the one line of a rank that fails because of another, are kept for FOLD_S:
others may print the same. All else goes out at once, behind what its own rank has printed before; between
ranks there is no order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from distdbg.errors import format_ranks
from distdbg.launch.outputs.blocks import WARNING, is_of_warning

FOLD_S: Final = 0.25
_MAX_BLOCKS: Final = 64
_MAX_NBYTES: Final = 1 << 16
#: 'PeerLost at train.py:80: rank 2 died', 'KeyboardInterrupt at train.py:80'.
_ONE_LINE: Final = re.compile(rb"[A-Z]\w+ at [^\n]{1,200}:\d+(?:: [^\n]*)?\n")
#: Our own warnings name their rank, which stands in front of the line here.
_LATENT: Final = b": LatentWarning: "
_TRACEBACK: Final = b"Traceback (most recent call last):\n"
_OWN_RANK: Final = re.compile(rb"(: LatentWarning: |^  )rank \d+:? ", re.MULTILINE)


class EqualLines:
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
            if len(self._kept) > _MAX_BLOCKS:
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
            lines = text.splitlines(keepends=True)
            out += b"".join((prefix if line.strip() else prefix.rstrip()) + line for line in lines)
        return out


def prefix_of(*ranks: int) -> bytes:
    """'[rank 2] ', '[ranks 0-1,3] '."""
    return f"[rank{'s' * (len(ranks) > 1)} {format_ranks(ranks)}] ".encode()


def _blocks_of(data: bytes, prefix: bytes) -> list[bytes]:
    """Each line; a warning or a traceback with the lines below it."""
    blocks: list[list[bytes]] = []
    for line in data.splitlines(keepends=True):
        if blocks and line.startswith(prefix.rstrip()) and _goes_on(blocks[-1], line, prefix):
            blocks[-1].append(line)
        else:
            blocks.append([line])
    return [b"".join(block) for block in blocks]


def _goes_on(block: list[bytes], line: bytes, prefix: bytes) -> bool:
    """Whether a line with the prefix belongs to the block above it."""
    bare = _bare(line, prefix)
    first = _bare(block[0], prefix)
    # Until the rank prints without its number: messages have lines of their own.
    if first == _TRACEBACK:
        return block[0].startswith(prefix) and not WARNING.match(bare)
    if not WARNING.match(first):
        return False
    return is_of_warning([_bare(each, prefix) for each in block], bare)


def _bare(line: bytes, prefix: bytes) -> bytes:
    """Without the prefix, of which an empty line has not the blank at its end."""
    return line[len(prefix) :] or b"\n"


def _text_of(block: bytes, prefix: bytes) -> bytes | None:
    """Without the prefix of its lines; None for what is not folded."""
    if len(block) > _MAX_NBYTES or not block.endswith(b"\n") or not block.startswith(prefix):
        return None
    text = b"".join(_bare(line, prefix) for line in block.splitlines(keepends=True))
    text = _OWN_RANK.sub(rb"\1", text) if _LATENT in text else text
    is_folded = text.startswith(_TRACEBACK) or WARNING.match(text) or _ONE_LINE.fullmatch(text)
    return text if is_folded else None
