"""A message of another size than was expected, in a program that leaves receives without a wait. Pure.

    size = self.head[0]     before irecv(self.head) has ended: the number of the message before
    recv(empty(size))       rank 1 sent 86, rank 2 expects 92

The size that a rank expects is often what an earlier message said: a receive that nobody waited for leads
the finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from distdbg.diagnose.finding import Evidence, Finding, FindingKind

_MESSAGE: Final = "message on group "
_LATENT: Final = (FindingKind.LEAKED_WORK, FindingKind.BUFFER_RACE)


def tell_stale_receive(found: Sequence[Finding]) -> list[Finding]:
    """The findings, messages that differ with the receives that were left."""
    latent = (one for kind in _LATENT for one in found if one.kind is kind)
    left = next((one for one in latent if _site_of_receive(one)), None)
    if left is None:
        return list(found)
    return [_led(one, left) if _is_message(one) else one for one in found]


def _is_message(finding: Finding) -> bool:
    return finding.kind is FindingKind.MISMATCH and finding.what.startswith(_MESSAGE)


def _site_of_receive(finding: Finding) -> str:
    """Where the receive was called: 'a.py:29'; '' where it is none."""
    is_receive = " recv on " in finding.what or finding.what.startswith("recv ")
    site = next((fact.site for fact in finding.evidence if fact.site), "")
    return site.partition(" (")[0] if is_receive else ""


def _led(finding: Finding, left: Finding) -> Finding:
    site = _site_of_receive(left)
    return replace(
        finding,
        evidence=(Evidence(text=left.what, site=site), *finding.evidence),
        advice=f"wait for the recv at {site} before its array is read: nobody does, so that what is in it "
        "may be of the message before",
    )
