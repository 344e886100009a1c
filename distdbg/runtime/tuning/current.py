"""The profile of this host, as its variables and the kept one say.

DISTDBG_TUNE not set, or on   the kept one, if there is one that holds here; else the default
DISTDBG_TUNE=off              the default
DISTDBG_TUNE=RULES            the first, with what the rules say (rules.py)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from distdbg import config
from distdbg.runtime.tuning.profile import Profile
from distdbg.runtime.tuning.profile_file import Machine, read_kept

_ON = ("", "on", "1", "true", "yes")
_OFF = ("off", "0", "false", "no")


def is_off(environ: Mapping[str, str] | None = None) -> bool:
    """Whether nothing is to be measured, and nothing measured is to be used."""
    return str(config.read_setting("DISTDBG_TUNE", environ)).strip().lower() in _OFF


def current_profile(environ: Mapping[str, str] | None = None) -> Profile:
    """What a group that is made now begins with; ConfigError for a variable that says nothing known."""
    words = str(config.read_setting("DISTDBG_TUNE", environ)).strip()
    if words.lower() in _OFF:
        return Profile()
    kept = read_kept(Machine.here(), os.environ if environ is None else environ)
    profile = Profile() if kept is None else kept.profile
    if config.read_setting("DISTDBG_SLOT_NBYTES", environ) is not None:
        # Somebody has said how long a round is.
        pairs, crowds = profile.pairs.of_whole_slots(), profile.crowds.of_whole_slots()
        profile = replace(profile, pairs=pairs, crowds=crowds)
    if words.lower() in _ON:
        return profile
    from distdbg.runtime.tuning.rules import apply_rules  # with NumPy

    return apply_rules(profile, words)
