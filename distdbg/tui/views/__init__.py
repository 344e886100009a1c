"""The views, in the order of the help. A view has a module; details are in tui/details."""

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
