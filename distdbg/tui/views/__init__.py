"""The views, in the order of the help. A view has a module; details are in tui/details.

breakpoints  the rules that are armed, and the ranks at a prompt
findings     the verdict, its evidence and hints; then the others by severity
groups       their members, and how far apart these are
host_rows    ranks as rows of hosts
log          what the ranks printed, merged
ops          how many, how big, how long, and who is late; a row per kind and group
ranks        what each of them does, and for how long
stacks       where ranks are now, equal ones once
timeline     ranks x time, what each was in and when
waits        who waits for whom, as a drawn graph or as a list
"""

from __future__ import annotations

from distdbg.tui.view import View
from distdbg.tui.views.breakpoints import BreakpointsView
from distdbg.tui.views.findings import FindingsView
from distdbg.tui.views.groups import GroupsView
from distdbg.tui.views.log import LogView
from distdbg.tui.views.ops import OpsView
from distdbg.tui.views.ranks import RanksView
from distdbg.tui.views.stacks import StacksView
from distdbg.tui.views.timeline import TimelineView
from distdbg.tui.views.waits import WaitsView

VIEWS: tuple[type[View], ...] = (
    RanksView,
    GroupsView,
    OpsView,
    TimelineView,
    WaitsView,
    FindingsView,
    StacksView,
    LogView,
    BreakpointsView,
)
