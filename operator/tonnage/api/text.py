"""Truncates text, escapes control characters, removes secrets from text of other programs, reads
JSON of theirs, shows values of objects, and digests data."""

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final

ELLIPSIS: Final = "..."
_MAX_INPUT_CHARS: Final = 60
_MAX_KEY_CHARS: Final = 253
_ENV: Final = "env"
"""Field of environment variables; every value can be a secret."""

_ORDER: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that order others from right to left: a line reads as another one than it is."""
_SEPARATORS: Final = (0x2028, 0x2029)
"""Of lines and of paragraphs."""

_CONTROLS: Final = {
    **{code: f"\\x{code:02x}" for code in (*range(9), *range(11, 32), *range(127, 160))},
    **{code: f"\\u{code:04x}" for code in (*_ORDER, *_SEPARATORS)},
}
"""All characters that control a terminal or the order of text, except tab and line feed."""


def escape_controls(text: str) -> str:
    """Escape control characters: foreign text must not control a terminal."""
    return text.translate(_CONTROLS)


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def canonical_json(value: object) -> str:
    """JSON data as text: equal data as equal text, without spaces."""
    return _CANONICAL.encode(value)


def digest(value: object) -> str:
    """A short, stable digest of JSON data."""
    return digest_json(canonical_json(value))


def digest_json(text: str) -> str:
    """The digest of data that is canonical JSON already."""
    return sha256(text.encode()).hexdigest()[:16]


def read_json_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object in a foreign text; None for any other text."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def truncate(text: str, max_bytes: int) -> str:
    """Cut the text to `max_bytes` of UTF-8 without splitting a character."""
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    return encoded[: max_bytes - len(ELLIPSIS)].decode(errors="ignore") + ELLIPSIS


REDACTED: Final = "***"

_SHORTEST_SECRET: Final = 6
"""Shorter known values are hardly secrets, and replacing them would garble words."""

_URL_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/?#'\"<>]*@")
_ESCAPED: Final = re.compile(r"%([0-7][0-9A-Fa-f])")
_SIGNED_QUERY: Final = re.compile(
    r"(?i)([?&](?:[\w-]*(?:signature|credential|token|secret|password)|sig|key|policy)=)[^\s&'\"<>]+"
)
_AUTHORIZATION: Final = re.compile(r"\b((?i:bearer|basic))(\s+)(?=\S*[A-Z0-9=._-])[\w.~+/=-]{8,}")
_NAMED: Final = re.compile(
    r"\b(?:(?i:(?:hf|hub|access|auth|api|refresh|id|session)[_-]token"
    r"|api[_-]?key|passw(?:or)?d|(?:client|aws)[_-]secret|secret[_-](?:access[_-])?key)"
    r"|[A-Z0-9_]*(?:TOKEN|PASSWORD|SECRET|API_KEY))"
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
    """Replace credentials in URLs, all token-like text, and the `known` secrets."""
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    text = _URL_CREDENTIALS.sub(f"{REDACTED}@", text)
    text = _SIGNED_QUERY.sub(rf"\g<1>{REDACTED}", text)
    text = _AUTHORIZATION.sub(rf"\g<1>\g<2>{REDACTED}", text)
    text = _KNOWN_SHAPES.sub(REDACTED, text)
    return _NAMED.sub(_redact_value, text)


def without_credentials(url: str) -> str:
    """The URL without its user and password."""
    return _URL_CREDENTIALS.sub("", url)


def passwords_of(url: str | None) -> tuple[str, ...]:
    """The password in the URL, percent-encoded and decoded; empty without one."""
    match = _URL_CREDENTIALS.search(url or "")
    password = match[0].rstrip("@").partition(":")[2] if match else ""
    decoded = _ESCAPED.sub(lambda escaped: chr(int(escaped[1], 16)), password)
    return tuple(sorted({password, decoded} - {""}))


def is_secret_name(variable: str) -> bool:
    """Whether the name of an environment variable suggests a secret."""
    return _SECRET_NAME.search(variable) is not None


def _redact_value(match: re.Match[str]) -> str:
    return match[0][: match.start("value") - match.start()] + REDACTED


def format_steps(path: Iterable[int | str]) -> str:
    """The steps into lists and objects, as in `.adapters[0].name`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{show_key(step)}" for step in path)


def show_value(value: object, location: Iterable[object] = ()) -> str:
    """The value for the message, unless it can be a secret."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "none"
    if _ENV in location:
        return "a value that is not shown"
    return _shorten(redact(repr(value)), _MAX_INPUT_CHARS)


def show_key(key: str) -> str:
    """The key as text that UTF-8 can encode: JSON may have half of a surrogate pair in it."""
    return _shorten(key.encode(errors="backslashreplace").decode(), _MAX_KEY_CHARS)


def _shorten(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[:characters] + "..."
