"""Which certificates are shown and trusted: both ends of a connection of a run show one, and TLS is 1.3.

Each process derives the certificate of the run from the token, so none has to be sent: the private key is
Ed25519, its 32 bytes derived from the token; number, name and dates are fixed. Who can show it knows the
token, and nothing else is trusted.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from distdbg.control.dialled_address import derive_token
from distdbg.errors import ConfigError
from distdbg.secure.settings import Files, TlsSettings

#: What clients that look at names, as Prometheus, are told to expect.
NAME: Final = "distdbg"
_FROM: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: Until when: certificates are made anew with each token, and clocks of hosts may be wrong.
_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """The contexts of connections between processes of a run, and of what others read over HTTPS."""

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
    """Refuse: OpenSSL would ask for a password on the terminal."""
    raise ValueError("the key has a password")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def derive_pair(token: bytes) -> KeyPair:
    """ConfigError where the package that makes certificates is not installed."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise ConfigError(
            "DISTDBG_TLS=1 needs the package cryptography to make the certificate of the run",
            details=[str(error)],
            hint="pip install distdbg[tls], or name certificates of your own with DISTDBG_TLS_CERT, "
            "DISTDBG_TLS_KEY and DISTDBG_TLS_CA",
        ) from error
    key = Ed25519PrivateKey.from_private_bytes(derive_token(token, "tls"))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, _FROM, _UNTIL)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key, None)
    )
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
