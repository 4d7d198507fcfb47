"""Connects to the API server: by a service account in a pod, by a kubeconfig elsewhere."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException

from tonnage import __version__

# The client ships no signatures for these.
_load_service_account: Callable[..., None] = config.load_incluster_config
_load_kubeconfig: Callable[..., Awaitable[Any]] = config.load_kube_config
_keep_token_fresh: Callable[..., Coroutine[Any, Any, None]] = config.refresh_token
_list_contexts: Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]] = (
    config.list_kube_config_contexts
)


class ConnectionConfigError(Exception):
    """No usable credentials: the message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What any HTTP client needs to reach the same API server as the same user."""

    server: str
    ca_path: str | None
    insecure: bool
    certificate_path: str | None
    private_key_path: str | None
    authorization: str | None = field(repr=False)
    """Value of the Authorization header at the time of the call."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An open client of one API server."""

    client: ApiClient

    async def credentials(self) -> Credentials:
        """The current credentials; tokens of a pod change about once an hour."""
        configuration = self.client.configuration
        return Credentials(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            authorization=await configuration.get_api_key_with_prefix("BearerToken"),
        )


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None, context: str | None = None
) -> AsyncIterator[Connection]:
    """Open a client, refresh its tokens, and close it at the end.

    `kubeconfig` is a path; without it a pod's service account is used, else the kubeconfig that
    kubectl would use. Raises ConnectionConfigError.
    """
    in_pod = _uses_service_account(kubeconfig, context)
    if not in_pod:
        _check_file(kubeconfig)
    configuration = Configuration()
    refreshing: asyncio.Task[None] | None = None
    try:
        if in_pod:
            _load_service_account(client_configuration=configuration)
        else:
            loader = await _load_kubeconfig(
                kubeconfig, context, client_configuration=configuration, persist_config=False
            )
            refreshing = asyncio.create_task(_keep_token_fresh(loader, configuration))
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        raise ConnectionConfigError(
            f"no credentials for an API server: {error}; give --kubeconfig, or run in a pod with a "
            "service account"
        ) from error
    _configure_proxy(configuration)
    try:
        async with ApiClient(configuration) as client:
            client.user_agent = f"tonnage/{__version__}"
            yield Connection(client)
    finally:
        if refreshing is not None:
            refreshing.cancel()


def _configure_proxy(configuration: Configuration) -> None:
    """Read the proxy from the environment once. The client would read it for each request, and a
    .netrc file too, each in a thread, which takes longer than the request."""
    configuration.client_session_kwargs = {"trust_env": False}
    server = urlsplit(configuration.host)
    if configuration.proxy is None and not proxy_bypass(server.netloc):
        configuration.proxy = getproxies().get(server.scheme)


def context_namespace(kubeconfig: str | None = None, context: str | None = None) -> str | None:
    """The namespace of the context, or of the pod; None where neither has one.

    Raises ConnectionConfigError for a missing kubeconfig or context.
    """
    if _uses_service_account(kubeconfig, context):
        return os.environ.get("POD_NAMESPACE") or None
    _check_file(kubeconfig)
    try:
        contexts, current = _list_contexts(kubeconfig)
    except (ConfigException, OSError, ValueError, TypeError, KeyError) as error:
        path = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
        raise ConnectionConfigError(f"kubeconfig {path} cannot be read: {error}") from error
    context_name = current["name"] if context is None else context
    entry = next((entry for entry in contexts if entry["name"] == context_name), None)
    if entry is None:
        raise ConnectionConfigError(f"the kubeconfig has no context {context_name!r}")
    namespace = (entry.get("context") or {}).get("namespace")
    return namespace if isinstance(namespace, str) and namespace else None


def _check_file(kubeconfig: str | None) -> None:
    """Refuse a missing kubeconfig: the client only prints a message and goes on without it."""
    if kubeconfig is not None and not Path(kubeconfig).is_file():
        raise ConnectionConfigError(f"kubeconfig {kubeconfig} is not a file")
    # What kubectl reads: $KUBECONFIG may name several files.
    default_paths = config.KUBE_CONFIG_DEFAULT_LOCATION
    if kubeconfig is None and not any(
        Path(path).expanduser().is_file() for path in default_paths.split(os.pathsep)
    ):
        raise ConnectionConfigError(
            f"there is no kubeconfig {default_paths}: give --kubeconfig, or set KUBECONFIG"
        )


def _uses_service_account(kubeconfig: str | None, context: str | None) -> bool:
    return kubeconfig is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ
