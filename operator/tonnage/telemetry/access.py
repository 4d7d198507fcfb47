"""How a Prometheus is reached: address, credentials, certificates, tenant.

Files are read when they are needed: tokens that Kubernetes projects into a pod are replaced long
before they end.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import stat_result
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from requests import PreparedRequest
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_auth_from_url

from tonnage.api.redact import redact, without_credentials

_LONGEST_TOKEN_BYTES: Final = 16 * 1024
"""As long as a header may be for most servers; tokens of ServiceAccounts have about 1 KiB."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_HEADER: Final = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)=(?P<value>[\x21-\x7e]+)")
_NOT_OURS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "host", "connection", "content-length"}
    | {"transfer-encoding", "accept-encoding"}
)
"""Credentials would be shown with the settings; the others are HTTP's own."""


class AccessError(ValueError):
    """A setting that cannot be used; the message names the value or the file, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """`url` may hold a user and a password; `tenant_header` is a name and a value."""

    url: str
    bearer_token_file: str | None = None
    ca_file: str | None = None
    tenant_header: tuple[str, str] | None = None
    _certificates: "_Certificates" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "_certificates", _Certificates(self.ca_file or DEFAULT_CA_BUNDLE_PATH)
        )

    @property
    def address(self) -> str:
        """The URL without credentials, which may be shown, and without a slash at its end."""
        return without_credentials(self.url).rstrip("/")

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes with each question beside the credentials."""
        return dict([self.tenant_header]) if self.tenant_header else {}

    def credentials(self) -> AuthBase | None:
        """As they are now; None where there are none. Raises AccessError for an unusable token."""
        if self.bearer_token_file is not None:
            return _Bearer(read_token(self.bearer_token_file))
        user, password = get_auth_from_url(self.url)
        return HTTPBasicAuth(user.encode(), password.encode()) if user or password else None

    def tls(self) -> ssl.SSLContext:
        """Trusts the CA of the file only, else the public ones. Raises AccessError."""
        return self._certificates.context()


class _Bearer(AuthBase):
    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Certificates:
    """A context for TLS, made again when the file changed: to make one takes 30 ms."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._made: tuple[object, ssl.SSLContext] | None = None

    def context(self) -> ssl.SSLContext:
        try:
            state = _identity(Path(self._path).stat())
        except OSError as error:
            raise AccessError(f"{self._path} cannot be read: {error.strerror}") from None
        if self._made is None or self._made[0] != state:
            self._made = (state, read_certificates(self._path))
        return self._made[1]


def _identity(found: stat_result) -> object:
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_token(path: str) -> str:
    """The token in the file, without the line break at its end. Raises AccessError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LONGEST_TOKEN_BYTES + 1)
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}") from None
    token = content.decode("ascii", errors="replace").strip()
    if len(content) > _LONGEST_TOKEN_BYTES:
        raise AccessError(f"{path} is too long for a token, expected at most 16 KiB")
    if not _TOKEN.fullmatch(token):
        raise AccessError(f"{path} does not hold one token, expected a single word of ASCII")
    return token


def read_certificates(path: str) -> ssl.SSLContext:
    """A context that trusts the CAs in the file. Raises AccessError."""
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise AccessError(f"{path} holds no certificates, expected a CA bundle in PEM") from None
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}") from None


def read_url(text: str) -> str:
    """The URL as it stands. Raises AccessError, which shows it without its password."""
    if not _is_address(text):
        raise AccessError(
            f"{redact(text)!r} is not the address of a Prometheus,"
            " expected one as in http://prometheus.monitoring:9090"
        )
    return text


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port  # is checked when it is read
        (parts.hostname or "").encode("idna")
    except ValueError:
        return False
    return (
        parts.scheme in ("http", "https")
        and bool(parts.hostname)
        and port != 0
        and not (parts.query or parts.fragment)
        and text.isprintable()
        and " " not in text
    )


def read_tenant_header(text: str) -> tuple[str, str]:
    """Name and value. Raises AccessError."""
    found = _HEADER.fullmatch(text)
    if found is None:
        raise AccessError("expected NAME=VALUE, for example X-Scope-OrgID=team-a")
    if found["name"].lower() in _NOT_OURS:
        raise AccessError(
            f"{found['name']} is no header of a tenant; credentials belong into the bearer token"
            " file or into the URL"
        )
    return found["name"], found["value"]
