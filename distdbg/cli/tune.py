"""`distdbg tune`: what this machine decides about how data moves, measured once and kept for you."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from distdbg import config
from distdbg.cli.table import print_table
from distdbg.command import ended_by_interrupts
from distdbg.errors import ConfigError, UsageError
from distdbg.ops.call import Kind
from distdbg.record.text import format_nbytes
from distdbg.runtime.tuning.current import current_profile
from distdbg.runtime.tuning.machine_cpus import is_bound_to_one, machine_cpus
from distdbg.runtime.tuning.profile import CLASSES, KINDS, NEVER, Profile, TransportKind
from distdbg.runtime.tuning.profile_file import KeptProfile, Machine, read_kept
from distdbg.runtime.tuning.trials import SIZES, Trial

_HEADS = ("ranks", "op", *(format_nbytes(nbytes) for nbytes in SIZES))
#: How often to try again while others use the cores, and how long to wait for them.
_TRIES, _WAIT_S = 3, 1.0
#: For groups of two ranks, and of more: a user who asks has time.
_BUDGET_S = (0.8, 1.7)
_ABOUT = {
    "stream_nbytes": "from where on outputs are written around the cache",
    "tile_nbytes": "what is folded at once, where it is read directly",
    "pushed_nbytes": "up to where blocking messages go through a channel; longer ones directly",
    "spins": "looks before it yields, of a rank with its own core",
    "yield_ns": "before ranks that share cores sleep",
}


def main(argv: Sequence[str]) -> int:
    """Measure where nothing is kept, or show; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="distdbg tune",
        description=__doc__,
        epilog="slots: through shared memory, 512 KiB a round; half: in shorter rounds; direct: "
        "read from the other process, and written to it. Times are of an op, in parentheses that of slots; "
        "before each second op each rank writes what it sends, which does not count itself; the size is what "
        "one rank brings. Results are the same to the last bit, whatever is chosen. The end of a job "
        "measures too where nobody has; DISTDBG_TUNE=off turns both off.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="what is kept; measure nothing")
    what.add_argument("--redo", action="store_true", help="measure again")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    chosen = parser.parse_args(argv)
    machine = Machine.here()
    kept = None if chosen.redo else read_kept(machine)
    if kept is None and not chosen.show:
        kept = _measure()
    if chosen.json:
        sys.stdout.write(json.dumps(_to_plain(machine, kept), indent=1) + "\n")
    else:
        _print(machine, kept)
    return 0


def _measure() -> KeptProfile:
    if is_bound_to_one():
        raise UsageError(
            f"this process is bound to one core of {len(machine_cpus())}: ranks would share it; "
            "start `distdbg tune` without taskset, mpirun or srun",
        )
    with ended_by_interrupts():  # loads native code, which --show does not need
        from distdbg.runtime.tuning.tuner import tune

    for left in reversed(range(_TRIES)):
        kept = tune(budget_s=_BUDGET_S, only_if_calm=left > 0)
        if not kept.is_disturbed:
            break
        if left:
            time.sleep(_WAIT_S)  # whoever it is may be done then
    if not kept.times:
        raise ConfigError("nothing could be measured: ranks of this user cannot share memory here")
    return kept


def _print(machine: Machine, kept: KeptProfile | None) -> None:
    words = (
        f"{machine.cpu}, {machine.cores} core{'s' * (machine.cores > 1)}, Linux {machine.kernel}"
    )
    if kept is None:
        sys.stdout.write(f"{words}: nothing is kept; `distdbg tune` measures it\n")
    else:
        print_table(
            f"{words}: measured {kept.measured_at}, in {kept.took_s:.2f} s",
            _HEADS,
            list(_rows(kept)),
        )
    profile, default = Profile() if kept is None else kept.profile, Profile()
    rows = []
    for name, about in _ABOUT.items():
        value, standard = getattr(profile, name), getattr(default, name)
        note = "" if value == standard else _value(name, standard)
        rows.append((name, _value(name, value), note, about))
    print_table("", ("setting", "value", "default", "what"), rows)
    for note in _notes(kept):
        sys.stdout.write(note + "\n")


def _rows(kept: KeptProfile) -> Iterator[tuple[str, ...]]:
    for ranks, ways in ((2, kept.profile.pairs), (4, kept.profile.crowds)):
        for label in KINDS:
            kind = Kind[label.upper()]
            cells = []
            for at, nbytes in enumerate(SIZES):
                times = kept.times.get(f"{ranks} {Trial(kind, nbytes, ()).name}", {})
                cells.append(_cell(ways.way(kind, CLASSES[at]), times))
            yield "2" if ranks == 2 else "3 on", kind.label, *cells


def _cell(way: TransportKind, times: Mapping[str, float]) -> str:
    """'half 13.9 us (30.5 us)'; the way alone where such a size was not measured."""
    if way not in times or TransportKind.SLOTS not in times:
        return way.value
    instead = "" if way is TransportKind.SLOTS else f" ({_time(times[TransportKind.SLOTS])})"
    return f"{way.value} {_time(times[way])}{instead}"


def _notes(kept: KeptProfile | None) -> Iterator[str]:
    if kept is not None and kept.is_disturbed:
        yield "other processes used the cores meanwhile: `distdbg tune --redo` when they are done"
    if kept is not None:
        yield f"kept in {kept.path}" if kept.path else "there is no folder to keep it in"
    words = str(config.read_setting("DISTDBG_TUNE"))
    if kept is not None and current_profile() != kept.profile:
        yield f"not what groups use now: DISTDBG_TUNE={words}" + (
            "" if "DISTDBG_SLOT_NBYTES" not in os.environ else ", DISTDBG_SLOT_NBYTES is set"
        )


def _to_plain(machine: Machine, kept: KeptProfile | None) -> dict[str, object]:
    return {
        "machine": asdict(machine),
        "used": current_profile().to_plain(),
        "kept": None
        if kept is None
        else {
            "path": None if kept.path is None else str(kept.path),
            "profile": kept.profile.to_plain(),
            "times_s": {trial: dict(times) for trial, times in kept.times.items()},
            "took_s": kept.took_s,
            "measured_at": kept.measured_at,
            "is_disturbed": kept.is_disturbed,
        },
    }


def _value(name: str, value: int) -> str:
    if name.endswith("_nbytes"):
        return "never" if value >= NEVER else format_nbytes(value)
    return f"{value / 1e3:g} us" if name.endswith("_ns") else str(value)


def _time(seconds: float) -> str:
    if seconds < 1e-4:
        return f"{seconds * 1e6:.1f} us"
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"
