"""Secrets taken out of text that came from elsewhere, before anybody reads it.

The first rule is never to write a secret down. This is for what others say: a server that repeats a
token, a client that quotes a URL with its password, a log line of vLLM with its arguments.
"""

import re
from collections.abc import Iterable
from typing import Final

REDACTED: Final = "***"

_SHORTEST_SECRET: Final = 6
"""Shorter known values are no secrets worth the name, and would tear words apart."""

_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
_ESCAPED: Final = re.compile(r"%([0-7][0-9A-Fa-f])")
_SIGNED_QUERY: Final = re.compile(
    r"(?i)([?&](?:[\w-]*(?:signature|credential|token|secret|password)|sig|key|policy)=)[^\s&'\"<>]+"
)
_AUTHORIZATION: Final = re.compile(r"\b((?i:bearer|basic))(\s+)(?=\S*[A-Z0-9=._-])[\w.~+/=-]{8,}")
_NAMED: Final = re.compile(
    r"(?:(?i:\b(?:hf|hub|access|auth|api|refresh|id|session)[_-]token"
    r"|\bapi[_-]?key|\bpassw(?:or)?d|\b(?:client|aws)[_-]secret|\bsecret[_-](?:access[_-])?key)"
    r"|\b[A-Z0-9_]*(?:TOKEN|PASSWORD|SECRET|API_KEY))"
    r"(?P<gap>['\"]?\s*[=:]\s*[\[('\"]*|\s+(?=\S*\d))(?P<value>[^\s'\",)\]}&]+)"
)
_KNOWN_SHAPES: Final = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}"  # Hugging Face
    r"|\beyJ[\w-]{8,2048}\.[\w-]{8,2048}(?:\.[\w-]{0,2048})?"  # JSON web tokens, of ServiceAccounts
    r"|\bsk-[\w-]{8,}"
    r"|\bgh[opsu]_[A-Za-z0-9]{16,}"
    r"|\bglpat-[\w-]{16,}"
)
_SECRET_NAME: Final = re.compile(r"(?i)token|password|passwd|secret|api_?key|credential")


def redact(text: str, known: Iterable[str] = ()) -> str:
    """The text without credentials in URLs, without what looks like a token, and without the
    `known` secrets."""
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    text = _URL_CREDENTIALS.sub(f"{REDACTED}@", text)
    text = _SIGNED_QUERY.sub(rf"\g<1>{REDACTED}", text)
    text = _AUTHORIZATION.sub(rf"\g<1>\g<2>{REDACTED}", text)
    text = _KNOWN_SHAPES.sub(REDACTED, text)
    return _NAMED.sub(_without_value, text)


def without_credentials(url: str) -> str:
    """The URL without the user and the password in it."""
    return _URL_CREDENTIALS.sub("", url)


def passwords_of(url: str | None) -> tuple[str, ...]:
    """The password in the URL, as it stands there and as it is meant; empty where there is none."""
    found = _URL_CREDENTIALS.search(url or "")
    password = found[0].rstrip("@").partition(":")[2] if found else ""
    meant = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), password)
    return tuple(sorted({password, meant} - {""}))


def names_a_secret(variable: str) -> bool:
    """Whether an environment variable of this name holds a secret, as far as a name can tell."""
    return _SECRET_NAME.search(variable) is not None


def _without_value(found: re.Match[str]) -> str:
    return found[0][: found.start("value") - found.start()] + REDACTED
