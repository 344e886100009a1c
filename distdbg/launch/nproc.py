"""How many ranks --nproc-per-node means on this host. Pure; machine.py looks at the host."""

from __future__ import annotations

from dataclasses import dataclass

from distdbg.errors import UsageError

_FLAG = "--nproc-per-node"
#: More than any host has processes for; without a limit a slip of the pen ends in a lack of memory.
_MAX_RANKS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of this host, whether it may be used or not."""

    minor: int
    """The number of its device file, which is its number for CUDA in the order of the bus."""
    pci: str = ""
    """Its address on the bus; empty: not known."""
    uuid: str = ""


def visible_gpus(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """Those that CUDA_VISIBLE_DEVICES leaves, in its order; None: it is not set.

    As CUDA does, the list ends at its first entry that names no GPU.
    """
    if visible is None:
        return gpus
    found: list[Gpu] = []
    for entry in visible.split(","):
        gpu = _find_gpu(gpus, entry.strip())
        if gpu is None:
            break
        found.append(gpu)
    return tuple(found)


def count_ranks(text: str, *, cpus: int, gpus: int) -> int:
    """Return how many ranks this host starts; UsageError for anything but auto, cpu, gpu or N."""
    text = text.strip()
    if text == "auto":
        return gpus or cpus
    if text == "cpu":
        return cpus
    if text == "gpu":
        if gpus == 0:
            raise UsageError(
                f"{_FLAG}=gpu: Cuda is not available: no GPU is visible on this host",
                hint=f"{_FLAG}=auto takes the CPUs where there is no GPU",
            )
        return gpus
    try:
        count = int(text)
    except ValueError:
        raise UsageError(
            f"Unsupported {_FLAG}={text!r}; expected a number, auto, cpu or gpu"
        ) from None
    if count < 1:
        raise UsageError(f"{_FLAG}={count}: at least one rank is needed")
    if count > _MAX_RANKS:
        raise UsageError(f"{_FLAG}={count}: a host has at most {_MAX_RANKS} ranks")
    return count


def _find_gpu(gpus: tuple[Gpu, ...], entry: str) -> Gpu | None:
    if entry.isdecimal():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if entry.startswith("MIG-"):
        # A slice of a GPU; which one of which GPU only the driver knows.
        return Gpu(minor=-1, uuid=entry)
    if not entry.startswith("GPU-"):
        return None
    # The beginning is enough for CUDA, if it is the beginning of one only.
    matching = [gpu for gpu in gpus if gpu.uuid.startswith(entry)]
    if len(matching) == 1:
        return matching[0]
    has_uuids = all(gpu.uuid for gpu in gpus)
    return None if has_uuids or not gpus else Gpu(minor=-1, uuid=entry)
