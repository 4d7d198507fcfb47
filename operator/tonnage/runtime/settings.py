"""What an operator can set, as flags or environment variables; few, because each is a promise."""

import argparse
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from tonnage.api.redact import passwords_of, redact
from tonnage.runtime.log_lines import FORMATS
from tonnage.telemetry.access import (
    AccessError,
    read_certificates,
    read_tenant_header,
    read_token,
    read_url,
)

_ENVIRONMENT_PREFIX: Final = "TONNAGE_"
_SHARD: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")
"""Short enough to stand before the name of any pool, in 63 characters."""

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SettingsError(Exception):
    """Settings that do not go together; the message names their flags."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Defaults are those of a cluster of some thousand nodes and objects.

    What limits requests to the API server is the number of workers; their rate is there for the day
    on which something goes wrong.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = "tonnage-system"
    namespaces: tuple[str, ...] = ()
    fleet_file: str | None = None
    shard: str | None = None
    listen: str = "0.0.0.0:8080"
    workers: int = 8
    kube_api_qps: float = 500.0
    kube_api_burst: int = 1000
    reconcile_deadline_seconds: float = 120.0
    drain_seconds: float = 20.0
    hf_endpoint: str | None = None
    hf_cache_directory: str | None = None
    prometheus_url: str | None = None
    prometheus_bearer_token_file: str | None = None
    prometheus_ca_file: str | None = None
    prometheus_tenant_header: tuple[str, str] | None = None
    prometheus_deadline_seconds: float = 5.0
    scaling_interval_seconds: float = 15.0
    log_level: str = "info"
    log_format: str = "json"

    @property
    def listen_host(self) -> str:
        """Host part of the listen address."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def listen_port(self) -> int:
        """Port of the listen address."""
        return int(self.listen.rpartition(":")[2])

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords of its URLs, which nobody is to be told."""
        return (*passwords_of(self.hf_endpoint), *passwords_of(self.prometheus_url))

    def to_dict(self) -> dict[str, Any]:
        """All of it, to be told at start, without the credentials that a URL may hold."""
        return {
            name: redact(value) if isinstance(value, str) else value
            for name, value in asdict(self).items()
        }


_HELP: Final[Mapping[str, str]] = {
    "kubeconfig": "kubeconfig file; default: the pod's service account, else as kubectl does",
    "context": "context of the kubeconfig; default: its current one",
    "namespace": "namespace of the Lease; in a cluster that of the operator",
    "namespaces": "namespaces that are served, with commas between them; default: all",
    "fleet_file": "file with the Nodes and AcceleratorPools, read instead of the cluster's; "
    "default: none",
    "shard": "part of the fleet and of the objects that is served: what has this name in its label"
    " tonnage.dev/shard; default: all that has no such label",
    "listen": "host:port of /healthz, /readyz and /metrics",
    "workers": "InferenceDeployments reconciled at once",
    "kube_api_qps": "requests a second to the API server, in the long run",
    "kube_api_burst": "requests to the API server at once",
    "reconcile_deadline_seconds": "longest time that one reconcile may take",
    "drain_seconds": "time that running reconciles get to end when the operator stops",
    "hf_endpoint": "address of the Hugging Face Hub or of its mirror; default: the public one",
    "hf_cache_directory": "where facts read from the Hub are kept; default: nowhere",
    "prometheus_url": "Prometheus that scrapes vLLM, asked what it measured; default: none",
    "prometheus_bearer_token_file": "file with the token for it, read anew for each question; "
    "default: none",
    "prometheus_ca_file": "file with the CAs that may have signed its certificate; "
    "default: the public ones",
    "prometheus_tenant_header": "header that names the tenant, as in X-Scope-OrgID=team-a; "
    "default: none",
    "prometheus_deadline_seconds": "longest time that one question to it may take",
    "scaling_interval_seconds": "time between two looks at the load where it is followed;"
    " vLLM is to be scraped as often",
    "log_level": "debug, info, warning or error",
    "log_format": "json (one object a line) or console (for people)",
}


def add_arguments(
    parser: argparse.ArgumentParser, environment: Mapping[str, str] = os.environ
) -> None:
    """Add a flag for each setting; its default is its environment variable, then its own."""
    for field in fields(Settings):
        variable = _ENVIRONMENT_PREFIX + field.name.upper()
        own = _own_defaults(environment).get(field.name, field.default)
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=_PARSERS.get(field.name, str),
            # argparse parses a default that is text, so that a bad variable is told like a flag.
            default=environment.get(variable, own),
            help=f"{_HELP[field.name]} (env {variable}{_tell_default(own)})",
        )


def _tell_default(own: object) -> str:
    return "" if own in (None, ()) else f", default {own}"


def settings_from(arguments: argparse.Namespace) -> Settings:
    """The settings among the parsed arguments. Raises SettingsError."""
    found = Settings(**{field.name: getattr(arguments, field.name) for field in fields(Settings)})
    _check_together(found)
    return found


def _check_together(settings: Settings) -> None:
    url, token_file = settings.prometheus_url, settings.prometheus_bearer_token_file
    of_a_url = {
        "--prometheus-bearer-token-file": token_file,
        "--prometheus-ca-file": settings.prometheus_ca_file,
        "--prometheus-tenant-header": settings.prometheus_tenant_header,
    }
    for flag, value in of_a_url.items():
        if value and not url:
            raise SettingsError(f"{flag}: there is no Prometheus, expected --prometheus-url too")
    if token_file and passwords_of(url):
        raise SettingsError(
            "--prometheus-bearer-token-file: --prometheus-url has a password, expected one of both"
        )
    if settings.prometheus_ca_file and not str(url).startswith("https:"):
        raise SettingsError(
            "--prometheus-ca-file: without TLS no certificate is checked,"
            " expected --prometheus-url with https"
        )


def process_identity() -> str:
    """This process among all replicas and restarts: the pod's name and its start."""
    return f"{socket.gethostname()}_{os.urandom(4).hex()}"


def _own_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """What the surroundings say without a setting of ours."""
    defaults = {}
    if environment.get("POD_NAMESPACE"):
        defaults["namespace"] = environment["POD_NAMESPACE"]
    if environment.get("HF_ENDPOINT"):
        defaults["hf_endpoint"] = environment["HF_ENDPOINT"]
    return defaults


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def _positive_float(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not host:port, for example 0.0.0.0:8080")
    return text


def _namespaces(text: str) -> tuple[str, ...]:
    """Each one once, in their order; a variable that is set and empty means all."""
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise argparse.ArgumentTypeError(
                f"{name!r} is not the name of a namespace, expected names as in chat,search"
            )
    return tuple(dict.fromkeys(names))


def _shard(text: str) -> str | None:
    """A variable that is set and empty means none."""
    if text and not _SHARD.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a shard, expected at most 30 of a-z, 0-9 and -, as in"
            " h100-east"
        )
    return text or None


def _level(text: str) -> str:
    if text.lower() not in ("debug", "info", "warning", "error"):
        raise argparse.ArgumentTypeError(f"{text} is not debug, info, warning or error")
    return text.lower()


def _format(text: str) -> str:
    if text not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text} is not {' or '.join(FORMATS)}")
    return text


def _if_set(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """A variable that is set and empty means the default; what is refused is told as it is."""

    def parse(text: str) -> Any:
        try:
            return read(text) if text.strip() else None
        except AccessError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _token_file(path: str) -> str:
    read_token(path)
    return path


def _ca_file(path: str) -> str:
    read_certificates(path)
    return path


_PARSERS: Final[Mapping[str, Any]] = {
    "prometheus_url": _if_set(read_url),
    "prometheus_bearer_token_file": _if_set(_token_file),
    "prometheus_ca_file": _if_set(_ca_file),
    "prometheus_tenant_header": _if_set(read_tenant_header),
    "prometheus_deadline_seconds": _positive_float,
    "scaling_interval_seconds": _positive_float,
    "namespaces": _namespaces,
    "shard": _shard,
    "listen": _address,
    "workers": _positive_int,
    "kube_api_qps": _positive_float,
    "kube_api_burst": _positive_int,
    "reconcile_deadline_seconds": _positive_float,
    "drain_seconds": _positive_float,
    "log_level": _level,
    "log_format": _format,
}
