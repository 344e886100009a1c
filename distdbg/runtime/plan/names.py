"""The names of the algorithms between hosts, for each kind.

`slots` goes through mirrored slots; all others exchange messages. A name with `_leaders` uses one rank
of each host for the messages, where the plain one shares them out over the lanes.
"""

from __future__ import annotations

from distdbg.ops.call import Kind

NAMES: dict[Kind, tuple[str, ...]] = {
    Kind.ALL_REDUCE: (
        "slots",
        "doubling",
        "doubling_leaders",
        "halving",
        "halving_leaders",
        "ring",
        "ring_leaders",
        "double_tree",
        "double_tree_leaders",
    ),
    Kind.BROADCAST: (
        "slots",
        "binomial",
        "binomial_leaders",
        "double_tree",
        "double_tree_leaders",
    ),
    Kind.REDUCE: (
        "slots",
        "binomial",
        "binomial_leaders",
        "double_tree",
        "double_tree_leaders",
        "ring",
        "ring_leaders",
        "halving",
        "halving_leaders",
    ),
    Kind.ALL_GATHER: ("slots", "bruck", "bruck_leaders", "ring", "ring_leaders"),
    Kind.GATHER: ("slots", "linear", "binomial"),
    Kind.SCATTER: ("slots", "linear", "binomial"),
    Kind.REDUCE_SCATTER: (
        "slots",
        "pairwise",
        "pairwise_leaders",
        "ring",
        "ring_leaders",
        "halving",
        "halving_leaders",
    ),
    Kind.ALL_TO_ALL: ("pairwise", "bruck"),
}

_LEADERS = "_leaders"


def split_name(name: str) -> tuple[str, bool]:
    """The algorithm without its ending, and whether leaders alone exchange messages."""
    return name.removesuffix(_LEADERS), name.endswith(_LEADERS)
