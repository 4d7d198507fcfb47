"""Who may speak to a stack: static tokens for the harness, a key for service accounts.

Made anew for each stack and worth nothing elsewhere. The servers' certificate is the one that
kube-apiserver signs for itself in `--cert-dir`.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from pathlib import Path

# Order of the P-256 group: a private key is any number below it.
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_P256_OID = bytes.fromhex("06082a8648ce3d030107")


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the token file: the name that the audit log shows, and its groups."""

    user: str
    groups: str = ""


# Controllers run as the real ones do: with the roles that kube-apiserver ships for their names.
ADMIN = Identity("e2e:admin", "system:masters")
HARNESS = Identity("e2e:harness", "system:masters")
KWOK = Identity("e2e:kwok", "system:masters")
CONTROLLER_MANAGER = Identity("system:kube-controller-manager")
SCHEDULER = Identity("system:kube-scheduler")
IDENTITIES = (ADMIN, HARNESS, KWOK, CONTROLLER_MANAGER, SCHEDULER)


def write_tokens(path: Path) -> dict[str, str]:
    """Write the token file of kube-apiserver and return user -> token."""
    tokens = {identity.user: secrets.token_urlsafe(32) for identity in IDENTITIES}
    lines = [
        f'{tokens[identity.user]},{identity.user},{identity.user},"{identity.groups}"'
        for identity in IDENTITIES
    ]
    write_private(path, "\n".join(lines) + "\n")
    return tokens


def write_signing_key(path: Path) -> None:
    """Write the key that signs service account tokens, as PEM of an EC private key (RFC 5915).

    The public half is optional there, since every reader can compute it from the number; so a
    random number and twenty bytes around it are a complete key, and no library is needed.
    """
    number = secrets.randbelow(_P256_ORDER - 1) + 1
    body = bytes.fromhex("020101") + b"\x04\x20" + number.to_bytes(32, "big")
    body += b"\xa0" + bytes([len(_P256_OID)]) + _P256_OID
    der = b"\x30" + bytes([len(body)]) + body
    text = base64.b64encode(der).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    pem = ["-----BEGIN EC PRIVATE KEY-----", *lines, "-----END EC PRIVATE KEY-----", ""]
    write_private(path, "\n".join(pem))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read."""
    path.touch(mode=0o600, exist_ok=True)
    path.write_text(text, encoding="utf-8")
