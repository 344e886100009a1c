"""What the variables ask for: no TLS, the certificate of the run, or certificates of the user's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from distdbg.config import read_setting
from distdbg.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Files:
    """Certificates of the user's own, in PEM."""

    certificate: Path
    key: Path
    ca: Path
    """The CA that has signed those of the other processes."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The certificates of a process that uses TLS."""

    files: Files | None = None
    """None: the certificate that is derived from the token."""


def is_on(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(read_setting("DISTDBG_TLS", environ))


def read_settings(environ: Mapping[str, str] = os.environ) -> TlsSettings | None:
    """None: no TLS. ConfigError for a half of the user's files."""
    if not is_on(environ):
        return None
    names = ("DISTDBG_TLS_CERT", "DISTDBG_TLS_KEY", "DISTDBG_TLS_CA")
    given = [read_setting(name, environ) for name in names]
    if not any(given):
        return TlsSettings()
    missing = [name for name, value in zip(names, given, strict=True) if not value]
    if missing:
        raise ConfigError(
            f"certificates of your own need all of {', '.join(names)}; not set: {', '.join(missing)}",
            hint="unset all three to use the certificate that is derived from the run's token",
        )
    certificate, key, ca = (Path(str(value)) for value in given)
    return TlsSettings(Files(certificate, key, ca))
