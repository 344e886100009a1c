"""`distdbg certificate`: what a client of /metrics has to trust under DISTDBG_TLS=1, in PEM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """To stdout: no secret is in it."""
    from distdbg.runtime.rendezvous.token import run_token
    from distdbg.secure.contexts import certificate_pem
    from distdbg.secure.settings import TlsSettings, read_settings

    argparse.ArgumentParser(prog="distdbg certificate", description=__doc__).parse_args(argv)
    # Also where only the job has the variable set.
    sys.stdout.write(certificate_pem(read_settings() or TlsSettings(), run_token()))
    return 0
