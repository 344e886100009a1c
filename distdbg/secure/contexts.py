"""Which certificates are shown and trusted: both ends of a connection of a run show one, and TLS is 1.3."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from functools import lru_cache

from distdbg.errors import ConfigError
from distdbg.secure.certificate import derive_pair
from distdbg.secure.settings import Files, TlsSettings


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """For connections between processes of a run, and for what others read over HTTPS."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    web: ssl.SSLContext
    """A server whose clients need no certificate."""


def make_contexts(settings: TlsSettings, token: bytes) -> TlsContexts:
    """ConfigError for certificates that cannot be made or loaded."""
    # The user's files may be replaced while a process runs; what is derived does not change.
    return _from_files(settings.files) if settings.files else _derived(token)


def certificate_pem(settings: TlsSettings, token: bytes) -> str:
    """What a client of /metrics has to trust, in PEM."""
    if settings.files is None:
        return derive_pair(token).certificate.decode()
    try:
        return settings.files.ca.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"DISTDBG_TLS_CA={settings.files.ca} cannot be read: {error}") from error


def _from_files(files: Files) -> TlsContexts:
    for variable, path in (
        ("DISTDBG_TLS_CERT", files.certificate),
        ("DISTDBG_TLS_KEY", files.key),
        ("DISTDBG_TLS_CA", files.ca),
    ):
        if not os.access(path, os.R_OK):
            raise ConfigError(f"{variable}={path} cannot be read")
    return _make(str(files.certificate), str(files.key), str(files.ca))


@lru_cache(maxsize=4)
def _derived(token: bytes) -> TlsContexts:
    pair = derive_pair(token)
    # Python's ssl loads private keys from files only: this one has no name, and is never on a disk.
    file = os.memfd_create("distdbg-tls", os.MFD_CLOEXEC)
    try:
        os.write(file, pair.key + pair.certificate)
        path = f"/proc/self/fd/{file}"
        return _make(path, path, path)
    finally:
        os.close(file)


def _make(certificate: str, key: str, ca: str) -> TlsContexts:
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        web = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client.check_hostname = False  # ranks dial addresses; who may speak is said by the CA alone
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(ca)
        server.num_tickets = 0  # nobody resumes
        web.options |= ssl.OP_NO_RENEGOTIATION  # of TLS 1.2, which scrapers may speak
        for context in (server, client, web):
            context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(
            f"the certificates cannot be loaded: {error}",
            details=[f"DISTDBG_TLS_CERT={certificate}", f"DISTDBG_TLS_KEY={key}"],
            hint="they are files in PEM, and the key is that of the certificate",
        ) from error
    return TlsContexts(server, client, web)


def _no_password() -> str:
    """Else OpenSSL would ask for it on the terminal."""
    raise ValueError("the key has a password")
