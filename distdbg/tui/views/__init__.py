"""The views, in the order of the help. A view's module has one View and the details that it opens."""

from __future__ import annotations

from distdbg.tui.view import View
from distdbg.tui.views.ranks import RanksView
from distdbg.tui.views.timeline import TimelineView

VIEWS: tuple[type[View], ...] = (RanksView, TimelineView)
