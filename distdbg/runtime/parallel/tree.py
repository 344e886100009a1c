"""Trees of arrays: dicts, lists and tuples, nested or not, as JAX and NumPy programs keep parameters. Pure.

A leaf has the name of its path: 'layer.weight', 'layers[3].bias'. Keys come in the order in which the tree
has them. Anything that is no dict, list or tuple is a leaf; None in a tree of gradients is a gradient that is
not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each leaf with its name."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(tree, (list, tuple)):
        for at, value in enumerate(tree):
            yield from leaves(value, f"{path}[{at}]")
    else:
        yield path, tree


def rebuild(tree: Any, values: Mapping[str, Any], path: str = "") -> Any:
    """A tree of the same form, with these leaves by their names; those that have none stay as they are."""
    if isinstance(tree, Mapping):
        made = {
            key: rebuild(value, values, f"{path}.{key}" if path else str(key))
            for key, value in tree.items()
        }
        kind: Any = type(tree)
        return made if kind is dict else kind(made)
    if isinstance(tree, (list, tuple)):
        parts = [rebuild(value, values, f"{path}[{at}]") for at, value in enumerate(tree)]
        kind = type(tree)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return values.get(path, tree)
