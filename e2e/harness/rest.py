"""A plain client of the Kubernetes API: dicts in, dicts out, nothing retried.

Built on the standard library, because a harness has to see exactly what the server answered: a
client that retries by itself would hide the very faults that tests are about.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

from e2e.harness.failure import HarnessError

Json = dict[str, Any]
_IDLE_LIMIT = 30.0  # seconds
_STALE = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError)


class ApiError(HarnessError):
    """The API server refused: `code` is the HTTP status, `reason` the word of the Status object."""

    def __init__(self, method: str, path: str, code: int, body: bytes) -> None:
        self.code = code
        self.reason = ""
        text = body.decode("utf-8", "replace").strip()
        try:
            status = json.loads(text)
            self.reason, text = status.get("reason", ""), status.get("message", text)
        except (ValueError, AttributeError):
            pass
        super().__init__(f"{method} {path} was answered {code} {self.reason}: {text}")


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server as one user."""

    server: str
    token: str
    authority: str  # PEM of the certificates that may sign the server's

    @staticmethod
    def load(kubeconfig: Path) -> Access:
        """Read the current context of a kubeconfig that uses a token, as this harness writes it."""
        try:
            config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
            wanted = config["current-context"]
            context = next(c["context"] for c in config["contexts"] if c["name"] == wanted)
            cluster = next(
                c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"]
            )
            user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
            authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
            return Access(cluster["server"], user["token"], authority)
        except OSError as error:
            raise HarnessError(f"kubeconfig {kubeconfig}: {error.strerror}") from None
        except (yaml.YAMLError, KeyError, StopIteration, TypeError, ValueError) as error:
            raise HarnessError(
                f"kubeconfig {kubeconfig}: its current context has no token and authority "
                f"({type(error).__name__}: {error}); expected one of "
                "`python -m e2e.harness.stack up`"
            ) from None

    def kubeconfig(self, user: str) -> str:
        """Return this access as a kubeconfig that kubectl and any client can use."""
        authority = base64.b64encode(self.authority.encode()).decode()
        name = "tonnage-e2e"
        cluster = {"server": self.server, "certificate-authority-data": authority}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
        return yaml.safe_dump(config, sort_keys=False)


class Rest:
    """Requests to one API server over one kept connection a thread."""

    def __init__(self, access: Access, timeout: float = 60.0) -> None:
        self.access = access
        self._timeout = timeout
        self._context = ssl.create_default_context(cadata=access.authority)
        self._local = threading.local()

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Json:
        """Send one request; return the decoded answer or raise ApiError."""
        raw = self.raw(method, path, body, query=query, content_type=content_type, accept=accept)
        return json.loads(raw) if raw else {}

    def raw(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Json | None = None,
        content_type: str = "application/json",
        accept: str = "*/*",
    ) -> bytes:
        """Send one request and return the answer's bytes, as a container log needs."""
        headers = {
            "Authorization": f"Bearer {self.access.token}",
            "Accept": accept,
            "Content-Type": content_type,
        }
        target = f"{path}?{urlencode(query)}" if query else path
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        try:
            status, answer = self._exchange(method, target, data, headers)
        except OSError as error:
            self._drop()
            raise HarnessError(
                f"{method} {target} at {self.access.server} failed: "
                f"{type(error).__name__}: {error}; is the stack running?"
            ) from error
        if status >= 400:
            raise ApiError(method, target, status, answer)
        return answer

    def serves(self, path: str) -> bool:
        """Whether the objects of a collection can be read. While the API server prepares the
        storage of a CRD, it answers with TooManyRequests."""
        try:
            self.request("GET", path, query={"limit": 1})
        except ApiError as error:
            return error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
        return True

    def lines(self, path: str, query: Json) -> Iterator[bytes]:
        """Yield the lines of an answer that has no end, as a watch has."""
        address = urlsplit(self.access.server)
        connection = http.client.HTTPSConnection(
            address.hostname or "", address.port, context=self._context
        )
        try:
            headers = {"Authorization": f"Bearer {self.access.token}"}
            connection.request("GET", f"{path}?{urlencode(query)}", headers=headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise ApiError("GET", path, response.status, response.read())
            yield from response
        finally:
            connection.close()

    def _exchange(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        kept = getattr(self._local, "connection", None) is not None
        try:
            return self._once(method, target, data, headers)
        except _STALE:
            # The server closes idle connections. Only a read may be sent again: a write might
            # have been carried out before the connection broke.
            self._drop()
            if not kept or method != "GET":
                raise
            return self._once(method, target, data, headers)

    def _once(
        self, method: str, target: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = self._connection()
        connection.request(method, target, body=data, headers=headers)
        response = connection.getresponse()
        return response.status, response.read()

    def _connection(self) -> http.client.HTTPSConnection:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        now = time.monotonic()
        if connection is not None and now - self._local.used > _IDLE_LIMIT:
            self._drop()  # the server is about to close it: a write must not meet that moment
            connection = None
        self._local.used = now
        if connection is None:
            address = urlsplit(self.access.server)
            connection = http.client.HTTPSConnection(
                address.hostname or "", address.port, timeout=self._timeout, context=self._context
            )
            self._local.connection = connection
        return connection

    def _drop(self) -> None:
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
        self._local.connection = None
