"""The operator's settings, as flags or environment variables."""

import argparse
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from tonnage.api.text import passwords_of, redact
from tonnage.controller.certificate import CertificateError, ServerCertificate
from tonnage.controller.log_lines import FORMATS
from tonnage.engines.image_mirrors import Mirrors, parse_mirrors
from tonnage.engines.inputs import BASELINE, PRIVILEGED
from tonnage.telemetry.access import (
    AccessError,
    read_certificates,
    read_tenant_header,
    read_token,
    read_url,
)

_ENVIRONMENT_PREFIX: Final = "TONNAGE_"
_SHARD: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?")
"""Short enough to prefix the name of any pool within 63 characters."""

_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class SettingsError(Exception):
    """The settings contradict each other; the message names their flags."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings. The defaults suit a cluster of some thousand nodes and objects.

    Normally the number of workers limits the requests to the API server; `kube_api_qps` limits
    them when something goes wrong.
    """

    kubeconfig: str | None = None
    context: str | None = None
    namespace: str = "tonnage-system"
    namespaces: tuple[str, ...] = ()
    fleet_file: str | None = None
    shard: str | None = None
    listen: str = "0.0.0.0:8080"
    tls_certificate_file: str | None = None
    tls_key_file: str | None = None
    metrics_auth: str = "none"
    workers: int = 8
    kube_api_qps: float = 500.0
    kube_api_burst: int = 1000
    reconcile_deadline_seconds: float = 120.0
    drain_seconds: float = 20.0
    hf_endpoint: str | None = None
    hf_cache_directory: str | None = None
    registry_mirrors: Mirrors | None = None
    pool_pod_security: str = BASELINE
    compute_domains: bool = False
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
        """The host of the listen address."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def listen_port(self) -> int:
        """The port of the listen address."""
        return int(self.listen.rpartition(":")[2])

    def read_certificate(self) -> ServerCertificate | None:
        """The certificate of the listen address; None for plain HTTP. Raises CertificateError."""
        if self.tls_certificate_file is None or self.tls_key_file is None:
            return None
        return ServerCertificate(self.tls_certificate_file, self.tls_key_file)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords of the URLs, which logs must not show."""
        return (*passwords_of(self.hf_endpoint), *passwords_of(self.prometheus_url))

    def to_dict(self) -> dict[str, Any]:
        """All settings, to be logged at start, without the credentials of URLs."""
        return {
            name: redact(value) if isinstance(value, str) else value
            for name, value in asdict(self).items()
        }


_HELP: Final[Mapping[str, str]] = {
    "kubeconfig": "kubeconfig file; default: the pod's service account, else as kubectl does",
    "context": "context of the kubeconfig; default: its current one",
    "namespace": "namespace of the Lease, which must exist; in a cluster, the operator's own",
    "namespaces": "comma-separated namespaces to serve; default: all",
    "fleet_file": "file with Nodes and AcceleratorPools, read instead of the cluster's; "
    "default: none",
    "shard": "serve only the nodes, pools and objects with this value of label tonnage.dev/shard;"
    " default: those without the label",
    "listen": "host:port of /healthz, /readyz and /metrics",
    "tls_certificate_file": "file with the certificate chain of this address, read again when it"
    " changes; default: none, plain HTTP",
    "tls_key_file": "file with the private key of the certificate; default: none",
    "metrics_auth": "who may read /metrics: none (every caller) or token (callers with a bearer"
    " token whose user may get /metrics)",
    "workers": "InferenceDeployments reconciled concurrently",
    "kube_api_qps": "sustained requests per second to the API server",
    "kube_api_burst": "burst of requests to the API server",
    "reconcile_deadline_seconds": "timeout of one reconcile",
    "drain_seconds": "time for running reconciles to finish when the operator stops",
    "hf_endpoint": "URL of the Hugging Face Hub or of its mirror; default: the public one",
    "pool_pod_security": "Pod Security Standard that podTemplates of AcceleratorPools must meet:"
    " baseline or privileged",
    "compute_domains": "whether to make ComputeDomains of NVIDIA's DRA driver, for pools whose"
    " interconnect has them: true or false",
    "hf_cache_directory": "directory to cache Hub metadata in; default: none",
    "registry_mirrors": "comma-separated PREFIX=MIRROR: where pods take images from instead, for"
    " example vllm=registry.example.com/vllm; a change applies to new pods; default: none",
    "prometheus_url": "URL of the Prometheus that scrapes vLLM; default: none",
    "prometheus_bearer_token_file": "file with the token for it, read again for each query; "
    "default: none",
    "prometheus_ca_file": "file with the CAs to verify its certificate; default: the public ones",
    "prometheus_tenant_header": "header that names the tenant, as in X-Scope-OrgID=team-a; "
    "default: none",
    "prometheus_deadline_seconds": "timeout of one query to it",
    "scaling_interval_seconds": "time between two measurements of the load, for autoscaling;"
    " Prometheus must scrape vLLM at least as often",
    "log_level": "debug, info, warning or error",
    "log_format": "json (one object a line) or console (for people)",
}


def add_arguments(
    parser: argparse.ArgumentParser, environment: Mapping[str, str] = os.environ
) -> None:
    """Add a flag for each setting; its environment variable overrides the setting's default."""
    for field in fields(Settings):
        variable = _ENVIRONMENT_PREFIX + field.name.upper()
        default = _environment_defaults(environment).get(field.name, field.default)
        parser.add_argument(
            "--" + field.name.replace("_", "-"),
            type=_PARSERS.get(field.name, str),
            # argparse parses a default that is a string, so it rejects a bad variable like a flag.
            default=environment.get(variable, default),
            help=f"{_HELP[field.name]} (env {variable}{_format_default(default)})",
        )


def _format_default(default: object) -> str:
    if default is False:
        return ", default false"
    if default in (None, ()):
        return ""
    return f", default {redact(str(default))}".replace("%", "%%")  # argparse formats the help


def settings_from(arguments: argparse.Namespace) -> Settings:
    """Take the settings from the parsed arguments. Raises SettingsError."""
    values = {field.name: getattr(arguments, field.name) for field in fields(Settings)}
    settings = Settings(**values)
    _check_prometheus(settings)
    _check_certificate(settings)
    return settings


def _check_certificate(settings: Settings) -> None:
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if (certificate is None) != (key is None):
        given, missing = "--tls-certificate-file", "--tls-key-file"
        if certificate is None:
            given, missing = missing, given
        raise SettingsError(f"{given} requires {missing}")
    try:
        settings.read_certificate()
    except CertificateError as error:
        raise SettingsError(f"--tls-certificate-file, --tls-key-file: {error}") from None


def _check_prometheus(settings: Settings) -> None:
    url, token_file = settings.prometheus_url, settings.prometheus_bearer_token_file
    require_url = {
        "--prometheus-bearer-token-file": token_file,
        "--prometheus-ca-file": settings.prometheus_ca_file,
        "--prometheus-tenant-header": settings.prometheus_tenant_header,
    }
    for flag, value in require_url.items():
        if value and not url:
            raise SettingsError(f"{flag} requires --prometheus-url")
    if token_file and passwords_of(url):
        raise SettingsError(
            "--prometheus-bearer-token-file: --prometheus-url has a password, expected one of both"
        )
    if settings.prometheus_ca_file and not str(url).startswith("https:"):
        raise SettingsError("--prometheus-ca-file requires a --prometheus-url with https")


def process_identity() -> str:
    """An identity unique among replicas and restarts: the host name and a random suffix."""
    return f"{socket.gethostname()}_{os.urandom(4).hex()}"


def _environment_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Defaults from variables that are not Tonnage's own."""
    defaults = {}
    if environment.get("POD_NAMESPACE"):
        defaults["namespace"] = environment["POD_NAMESPACE"]
    if environment.get("HF_ENDPOINT"):
        defaults["hf_endpoint"] = environment["HF_ENDPOINT"]
    return defaults


def _above_zero(read: Callable[[str], float], what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = read(text)
        except ValueError:
            number = 0
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"{text} is not {what}")
        return number

    return parse


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            choices = f"{', '.join(words[:-1])} or {words[-1]}"
            raise argparse.ArgumentTypeError(f"{text} is not {choices}")
        return text

    return parse


def _parse_address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not host:port, for example 0.0.0.0:8080")
    return text


def _parse_namespaces(text: str) -> tuple[str, ...]:
    """Parse distinct namespaces, in order; an empty variable means all."""
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    for name in names:
        if not _NAMESPACE.fullmatch(name):
            raise argparse.ArgumentTypeError(
                f"{name!r} is not the name of a namespace, expected names such as chat,search"
            )
    return tuple(dict.fromkeys(names))


def _parse_registry_mirrors(text: str) -> Mirrors | None:
    """Parse pairs of a prefix and its mirror; an empty variable means none."""
    try:
        return parse_mirrors(text) or None
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _parse_shard(text: str) -> str | None:
    """Parse a shard's name; an empty variable means none."""
    if text and not _SHARD.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a shard, expected at most 30 of a-z, 0-9 and -, such as"
            " h100-east"
        )
    return text or None


def _parse_switch(text: str) -> bool:
    return _one_of("true", "false")(text) == "true"


def _parse_level(text: str) -> str:
    return _one_of("debug", "info", "warning", "error")(text.lower())


def _optional(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Parse with `read`, unless the variable is empty, which means the default."""

    def parse(text: str) -> Any:
        try:
            return read(text) if text.strip() else None
        except AccessError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse


def _parse_token_file(path: str) -> str:
    read_token(path)
    return path


def _parse_ca_file(path: str) -> str:
    read_certificates(path)
    return path


def _parse_hub_url(text: str) -> str:
    return read_url(text, "Hub", "https://huggingface.co")


_POSITIVE_INT: Final = _above_zero(int, "an integer of at least 1")
_POSITIVE_FLOAT: Final = _above_zero(float, "a number above 0")

_PARSERS: Final[Mapping[str, Any]] = {
    "hf_endpoint": _optional(_parse_hub_url),
    "prometheus_url": _optional(read_url),
    "registry_mirrors": _parse_registry_mirrors,
    "prometheus_bearer_token_file": _optional(_parse_token_file),
    "prometheus_ca_file": _optional(_parse_ca_file),
    "prometheus_tenant_header": _optional(read_tenant_header),
    "prometheus_deadline_seconds": _POSITIVE_FLOAT,
    "scaling_interval_seconds": _POSITIVE_FLOAT,
    "pool_pod_security": _one_of(BASELINE, PRIVILEGED),
    "compute_domains": _parse_switch,
    "namespaces": _parse_namespaces,
    "shard": _parse_shard,
    "listen": _parse_address,
    "tls_certificate_file": _optional(str),
    "tls_key_file": _optional(str),
    "metrics_auth": _one_of("none", "token"),
    "workers": _POSITIVE_INT,
    "kube_api_qps": _POSITIVE_FLOAT,
    "kube_api_burst": _POSITIVE_INT,
    "reconcile_deadline_seconds": _POSITIVE_FLOAT,
    "drain_seconds": _POSITIVE_FLOAT,
    "log_level": _parse_level,
    "log_format": _one_of(*FORMATS),
}
