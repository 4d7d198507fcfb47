"""The two metrics APIs that a HorizontalPodAutoscaler asks, answered with what a test sets.

In a real cluster an adapter of Prometheus, or KEDA, stands here. The API server reaches it as it
reaches those: by an APIService, whose Service leads to a TLS server on loopback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from e2e.harness.admin import Admin, condition
from e2e.harness.loopback_server import Certificate, LoopbackServer
from e2e.harness.ports import PortLease
from e2e.harness.rest import Json, Rest
from e2e.harness.stack import Stack

EXTERNAL = ("external.metrics.k8s.io", "v1beta1")
PODS = ("custom.metrics.k8s.io", "v1beta2")
_SERVICE = ("default", "e2e-metrics")
_RESOURCES: Mapping[tuple[str, str], str] = {
    EXTERNAL: "ExternalMetricValueList",
    PODS: "MetricValueList",
}


class MetricsApi:
    """Values by metric name: `external` for a whole queue, `per_pod` the same for each pod.

    `asked` counts how often a value was asked for, `selectors` has by which labels of pods.
    """

    def __init__(self, stack: Stack) -> None:
        self.external: dict[str, int] = {}
        self.per_pod: dict[str, int] = {}
        self.asked = 0
        self.selectors: set[str] = set()
        self._rest = Rest(stack.access)
        self._ports = PortLease(["metrics"])
        self._server = self._listen(stack)
        self._server.start()

    @property
    def port(self) -> int:
        """Where it listens on loopback."""
        return self._ports.ports["metrics"]

    def register(self, admin: Admin) -> None:
        """Make the API server pass both groups on to here, and wait until it does."""
        namespace, name = _SERVICE
        spec = {"type": "ExternalName", "externalName": "localhost"}
        metadata = {"name": name, "namespace": namespace}
        admin.apply({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        for group, version in _RESOURCES:
            admin.apply(self._api_service(group, version))
            admin.wait_for("apiservices", f"{version}.{group}", condition("Available"))

    def close(self, admin: Admin) -> None:
        """Take the groups back first: one that does not answer blocks every namespace's end."""
        for group, version in _RESOURCES:
            admin.delete("apiservices", f"{version}.{group}")
        admin.delete("services", _SERVICE[1], _SERVICE[0])
        self._server.stop()
        self._ports.release()

    def answer(self, target: str) -> tuple[int, Json]:
        """The answer to a GET as the kinds of k8s.io/metrics have it."""
        address = urlsplit(target)
        parts = address.path.strip("/").split("/")
        group = (parts[1], parts[2]) if len(parts) >= 3 else ("", "")
        if group not in _RESOURCES:
            return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
        version = "/".join(group)
        if len(parts) == 3:
            return 200, _resource_list(version)
        self.asked += 1
        selector = parse_qs(address.query).get("labelSelector", [""])[0]
        items = (
            self._external(parts[-1])
            if group == EXTERNAL
            else self._of_pods(parts[4], parts[-1], selector)
        )
        return 200, {"kind": _RESOURCES[group], "apiVersion": version, "items": items}

    def _external(self, metric: str) -> list[Json]:
        if metric not in self.external:
            return []
        value = str(self.external[metric])
        return [{"metricName": metric, "metricLabels": {}, "timestamp": _now(), "value": value}]

    def _of_pods(self, namespace: str, metric: str, selector: str) -> list[Json]:
        """One value for each pod that the selector finds: the caller's selector has to be right."""
        self.selectors.add(selector)
        if metric not in self.per_pod:
            return []
        query = urlencode({"labelSelector": selector})
        pods = self._rest.request("GET", f"/api/v1/namespaces/{namespace}/pods?{query}")["items"]
        return [
            {
                "describedObject": {
                    "kind": "Pod",
                    "apiVersion": "/v1",
                    "namespace": namespace,
                    "name": pod["metadata"]["name"],
                },
                "metric": {"name": metric},
                "timestamp": _now(),
                "value": str(self.per_pod[metric]),
            }
            for pod in pods
        ]

    def _api_service(self, group: str, version: str) -> Json:
        namespace, name = _SERVICE
        return {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                # The certificate is the stack's own, which does not bear this Service's name.
                "insecureSkipTLSVerify": True,
                "service": {"namespace": namespace, "name": name, "port": self.port},
            },
        }

    def _listen(self, stack: Stack) -> LoopbackServer:
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                code, answer = api.answer(self.path)
                body = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - inherited name
                """Stay silent: the audit log has every request already."""

        pki = stack.layout.pki
        certificate = Certificate(pki / "apiserver.crt", pki / "apiserver.key")
        return LoopbackServer(Handler, port=self.port, certificate=certificate)


def _resource_list(version: str) -> Json:
    """What discovery shows; the names of metrics are not listed, as large adapters do it too."""
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": []}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
