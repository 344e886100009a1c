"""Random programs for the simulator: in most cases right ones with steps moved, changed, lost or added."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import dropwhile
from random import Random

from distdbg.diagnose.ops import NONE
from tests.unit.diagnose.simulator import FORMS, Program, Step


def draw_program(random: Random) -> Program:
    """A program that is right, in most cases with some steps moved, changed, lost or added."""
    size = random.choice((2, 2, 3, 3, 3, 4, 4, 5, 6))
    groups = [tuple(range(size))]
    for _ in range(random.randrange(3)):
        members = random.sample(range(size), random.randint(2, size))
        groups.append(tuple(sorted(members)))
    steps: list[list[Step]] = [[] for _ in range(size)]
    handles = [0]
    for _ in range(random.randrange(2, 7)):
        _add_event(random, groups, steps, handles)
    for _ in range(random.choice((0, 1, 1, 2, 2, 3, 5))):
        _spoil(random, groups, steps)
    threads = [[mine] for mine in steps]
    if random.random() < 0.15:  # one rank hands a part of its steps to a second thread
        rank = random.randrange(size)
        cut = random.randint(0, len(steps[rank]))
        # No record knows of a thread before its first op: it begins with one.
        other = list(dropwhile(lambda step: step.verb not in FORMS, steps[rank][cut:]))
        threads[rank] = [steps[rank][:cut], other]
    return Program(groups, threads)


def _add_event(
    random: Random,
    groups: Sequence[tuple[int, ...]],
    steps: Sequence[list[Step]],
    handles: list[int],
) -> None:
    """Something that works: a collective, a message, a message to a receiver from any rank."""
    group = random.randrange(len(groups))
    members = groups[group]
    what = random.random()
    if what < 0.35:
        for rank in members:
            _add(random, steps[rank], Step("collective", group), handles)
    elif what < 0.42:
        for rank in members:
            steps[rank].append(Step("barrier", group))
    else:
        sender, receiver = random.sample(members, 2)
        tag = random.choice((0, 0, 0, 5))
        source = NONE if random.random() < 0.35 else sender
        _add(random, steps[sender], Step("send", group, receiver, tag), handles)
        _add(random, steps[receiver], Step("recv", group, source, tag), handles)


def _add(random: Random, steps: list[Step], step: Step, handles: list[int]) -> None:
    if random.random() > 0.25:
        steps.append(step)
        return
    handles[0] += 1
    steps.append(step._replace(is_async=True, handle=handles[0]))
    if random.random() < 0.85:
        steps.append(Step("wait", handle=handles[0]))
        if len(steps) > 2 and random.random() < 0.4:  # waits later, or before another wait
            at = random.randrange(len(steps) - 1)
            if steps[at].verb == "wait":
                steps[at], steps[-1] = steps[-1], steps[at]


def _spoil(random: Random, groups: Sequence[tuple[int, ...]], steps: Sequence[list[Step]]) -> None:
    rank = random.randrange(len(steps))
    mine = steps[rank]
    at = random.randrange(len(mine) + 1)
    what = random.random()
    if what < 0.12:
        mine.insert(at, Step("compute"))
    elif what < 0.22:
        mine.insert(at, Step("crash"))
    elif what < 0.3:
        del mine[at:]
    elif what < 0.38:
        choices = [i for i, group in enumerate(groups) if rank in group]
        group = random.choice(choices)
        peer = random.choice([NONE, *groups[group]])
        mine.insert(at, Step("recv", group, peer, random.choice((0, 0, 5))))
    elif at < len(mine):
        step = mine[at]
        if what < 0.5:
            del mine[at]
        elif what < 0.6 and step.verb in ("send", "recv"):
            mine[at] = step._replace(tag=5 - step.tag)
        elif what < 0.7 and step.verb == "recv":
            mine[at] = step._replace(peer=NONE)
        else:
            other = random.randrange(len(mine))
            mine[at], mine[other] = mine[other], mine[at]
