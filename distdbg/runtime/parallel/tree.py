"""Trees of arrays: dicts, lists and tuples, nested or not, as JAX and NumPy programs keep parameters. Pure.

A leaf has the name of its path: 'layer.weight', 'layers[3].bias'. Keys come in the order in which the tree
has them. Anything that is no dict, list or tuple is a leaf; None in a tree of gradients is a gradient that is
not there, and in one of averages it is a parameter that no rank has used.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from distdbg.errors import UsageError


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


def by_name(tree: Any, function: str) -> dict[str, Any]:
    """All leaves; UsageError where two have one name, as those of {'a.b': x, 'a': {'b': y}}."""
    found: dict[str, Any] = {}
    for name, leaf in leaves(tree):
        if name in found:
            raise UsageError(
                f"{function}: two arrays have the name {name}",
                hint="names are the keys on the way, joined by dots: rename one of the keys",
            )
        found[name] = leaf
    return found


def rebuild(tree: Any, values: Mapping[str, Any], path: str = "") -> Any:
    """A tree of the same form, with these leaves by their names; None for those that have none."""
    if isinstance(tree, Mapping):
        made = {
            key: rebuild(value, values, f"{path}.{key}" if path else str(key))
            for key, value in tree.items()
        }
        return _mapping_like(tree, made)
    if isinstance(tree, (list, tuple)):
        parts = [rebuild(value, values, f"{path}[{at}]") for at, value in enumerate(tree)]
        kind: Any = type(tree)
        return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
    return values.get(path)


def _mapping_like(tree: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    kind: Any = type(tree)
    if kind is dict:
        return made
    if not isinstance(tree, dict):
        return kind(made)
    like = copy.copy(tree)  # a defaultdict has more to it than its items
    like.update(made)
    return like
