"""Conformance suites: one set of tests per interface, for every implementation of it, also yours."""

from __future__ import annotations
