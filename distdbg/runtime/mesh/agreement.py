"""Checks that all ranks make the same mesh: else they would wait for each other while its groups are made."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from distdbg.check.arrays import few, odd_ranks, say_ranks
from distdbg.errors import MismatchError
from distdbg.ops.sites import call_site, shorten
from distdbg.record.writing import write_error
from distdbg.runtime.api.objects import all_gather_object
from distdbg.runtime.groups.group import ProcessGroup
from distdbg.runtime.mesh.layout import Ranks


def check_agreement(default: ProcessGroup, words: str, ranks: Ranks) -> None:
    """A collective: MismatchError on all ranks unless all have given the same."""
    if default.size() == 1:
        return
    digest = blake2b(ranks.tobytes(), digest_size=8).hexdigest()
    everybody: list[Any] = list(default.ranks)  # as many
    all_gather_object(everybody, (words, digest, call_site()), group=default)
    if all(each[:2] == everybody[0][:2] for each in everybody):
        return
    error = _explain(default, everybody)
    if default.world.recorder is not None:
        write_error(default.world.recorder, default.record_number, 0, error)
    raise error


def _explain(default: ProcessGroup, everybody: Sequence[tuple[str, str, str]]) -> MismatchError:
    sides: dict[tuple[str, str], list[int]] = {}
    places: dict[str, list[int]] = {}
    short = shorten({site for _, _, site in everybody})
    for rank, (words, digest, site) in zip(default.ranks, everybody, strict=True):
        sides.setdefault((words, digest), []).append(rank)
        places.setdefault(short[site], []).append(rank)
    ordered = sorted(sides.items(), key=lambda side: (-len(side[1]), side[1]))
    is_order = len({words for words, _ in sides}) < len(sides)
    texts = [f"{words} on {say_ranks(ranks)}" for (words, _), ranks in ordered]
    details = few([f"{say_ranks(ranks)} made it at {site}" for site, ranks in places.items()])
    if is_order:
        details.append("meshes of one shape have their ranks in different orders")
    odd = odd_ranks([(words, digest) for words, digest, _ in everybody], list(default.ranks))
    return MismatchError(
        f"device mesh differs between ranks: {', '.join(few(texts))}",
        kind="init_device_mesh",
        group=default.label,
        ranks=odd,
        details=[*details, "no group was made"],
        hint="all ranks must give the same mesh_shape, mesh_dim_names and device_type",
    )
