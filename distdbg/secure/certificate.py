"""The certificate of a run: each process derives the same one from the token, so none has to be sent.

The private key is Ed25519, its 32 bytes derived from the token; number, name and dates are fixed. Who can
show it knows the token, and nothing else is trusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from distdbg.control.tokens import derive_token
from distdbg.errors import ConfigError

#: What clients that look at names, as Prometheus, are told to expect.
NAME: Final = "distdbg"
_FROM: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: Until when: certificates are made anew with each token, and clocks of hosts may be wrong.
_UNTIL: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


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
