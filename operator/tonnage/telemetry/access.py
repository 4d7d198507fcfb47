"""How the operator accesses a Prometheus: address, credentials, CA certificates, tenant.

It reads the files again for each query: Kubernetes replaces a projected token long before the token
expires.
"""

import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_auth_from_url

from tonnage.api.text import REDACTED, redact, without_credentials

_PROMETHEUS: Final = "Prometheus"
_PROMETHEUS_URL: Final = "http://prometheus.monitoring:9090"

_MAX_TOKEN_BYTES: Final = 16 * 1024
"""Few servers take a longer header; a token of a ServiceAccount has about 1 KiB."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_HEADER: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)=(?P<value>[\x21-\x7e]+)")
_SCHEME: Final = re.compile(r"[A-Za-z]+://")
_RESERVED_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length"}
    | {"transfer-encoding", "accept-encoding"}
)
"""The operator logs this setting, so it must not hold credentials; HTTP sets the others."""


class AccessError(ValueError):
    """The setting is invalid; the message names the value or the file, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """`url` may hold a user and a password; `tenant_header` is a name and a value."""

    url: str
    bearer_token_file: str | None = None
    ca_file: str | None = None
    tenant_header: tuple[str, str] | None = None

    @property
    def address(self) -> str:
        """The URL without credentials, safe to log, and without a trailing slash."""
        return without_credentials(self.url).rstrip("/")

    def headers(self) -> Mapping[str, str]:
        """The headers for tenant and credentials, from the current files. Raises AccessError."""
        headers = dict([self.tenant_header]) if self.tenant_header else {}
        user, password = get_auth_from_url(self.url)
        if self.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(self.bearer_token_file)}"
        elif user or password:
            headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"
        return headers

    def tls(self) -> ssl.SSLContext:
        """A context that trusts the file's CAs, or else the public ones. Raises AccessError."""
        return read_certificates(self.ca_file or DEFAULT_CA_BUNDLE_PATH)


def read_token(path: str) -> str:
    """Read the token from the file, without the trailing line break. Raises AccessError."""
    content = _read_file(path, _MAX_TOKEN_BYTES + 1)
    if len(content) > _MAX_TOKEN_BYTES:
        raise AccessError(f"{path} is too long for a token, expected at most 16 KiB")
    if not _TOKEN.fullmatch(content.strip()):
        raise AccessError(f"{path} does not hold one token, expected a single word of ASCII")
    return content.strip()


def read_certificates(path: str) -> ssl.SSLContext:
    """Make a context that trusts the CAs in the file, and no others. Raises AccessError."""
    try:
        return _trust(_read_file(path))
    except ssl.SSLError:
        raise AccessError(f"{path} holds no certificates, expected a CA bundle in PEM") from None


@lru_cache(maxsize=1)  # OpenSSL takes 20 ms of CPU for the public CAs
def _trust(certificates: str) -> ssl.SSLContext:
    # With an empty text Python trusts the system's CAs; the line break keeps it from being empty.
    return ssl.create_default_context(cadata=certificates.replace("\ufffd", "?") + "\n")


def _read_file(path: str, max_bytes: int = -1) -> str:
    """Read the file, or its first `max_bytes`, as ASCII; other bytes become U+FFFD.

    Raises AccessError.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(max_bytes).decode("ascii", "replace")
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}") from None


def read_url(text: str, what: str = _PROMETHEUS, example: str = _PROMETHEUS_URL) -> str:
    """Check the URL of `what` and return it. Raises AccessError, whose message omits the
    password."""
    try:
        url = urlsplit(text)
        is_valid = (
            url.scheme in ("http", "https")
            and (url.hostname or "").encode("idna") != b""
            and url.port != 0
            and not (url.query or url.fragment)
            and text.isprintable()
            and " " not in text
        )
    except ValueError:  # for a host in brackets, for a port, and for a name that IDNA rejects
        is_valid = False
    if not is_valid:
        encode = "; percent-encode /, ?, # and @ in user and password" if "@" in text else ""
        raise AccessError(
            f"{_without_user(text)!r} is not the address of a {what},"
            f" expected a URL such as {example}{encode}"
        )
    return text


def _without_user(text: str) -> str:
    """The text without what may be a password: all before the last @ but the scheme. A password
    that is not percent-encoded is why a URL is invalid, and hides where it ends."""
    user, at, host = text.rpartition("@")
    scheme = _SCHEME.match(user)
    return f"{scheme[0] if scheme else ''}{REDACTED}@{host}" if at else redact(text)


def read_tenant_header(text: str) -> tuple[str, str]:
    """Parse NAME=VALUE. Raises AccessError."""
    header = _HEADER.fullmatch(text)
    if header is None:
        raise AccessError("expected NAME=VALUE, for example X-Scope-OrgID=team-a")
    if header["name"].lower() in _RESERVED_HEADERS:
        raise AccessError(
            f"{header['name']} is not a tenant header; put credentials into the bearer token"
            " file or into the URL"
        )
    return header["name"], header["value"]
