"""NVIDIA's DRA driver, as far as pods that claim a channel of a ComputeDomain depend on it.

It makes the ResourceClaimTemplate of each ComputeDomain, publishes the channel of each node, and
takes the template away with the ComputeDomain. It starts no daemon and writes no status: neither
decides where pods run. Source: cmd/compute-domain-controller, templates/ and deployments/ of
kubernetes-sigs/dra-driver-nvidia-gpu, tag v25.8.0.
"""

from __future__ import annotations

import threading
from http import HTTPStatus
from pathlib import Path
from types import TracebackType

from e2e.harness.admin import Admin
from e2e.harness.rest import ApiError, Json, Rest
from tests.support.fleets.dra_objects import device_class, raw_slice

DRIVER = "compute-domain.nvidia.com"
CHANNEL = "channel-0"
_API = "resource.nvidia.com/v1beta1"
_CRD = Path(__file__).with_name("compute_domain_crd.yaml")
_CRD_NAME = "computedomains.resource.nvidia.com"
_CLASS = "compute-domain-default-channel.nvidia.com"
_FINALIZER = "resource.nvidia.com/computeDomain"
_CLAIMS = "resource.k8s.io/v1"
_MERGE = "application/merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_ROUND_SECONDS = 0.2
_OVERTAKEN = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS,
}


class ComputeDomainDriver:
    """Installed on these nodes while the `with` block runs; its kind is gone afterwards."""

    def __init__(self, admin: Admin, nodes: list[str]) -> None:
        self._admin, self._nodes = admin, nodes
        self._rest = Rest(admin.rest.access)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: Exception | None = None

    def __enter__(self) -> ComputeDomainDriver:
        self._admin.apply(_CRD)
        self._admin.apply([_channel_class(), *map(_slice, self._nodes)])
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """Its kind goes first: the driver removes its finalizers from the objects."""
        if self._error is not None:
            raise self._error
        try:
            self._admin.delete("customresourcedefinitions", _CRD_NAME)
        finally:
            self._over.set()
            self._thread.join()
        for node in self._nodes:
            self._admin.delete("resourceslices", _slice(node)["metadata"]["name"])
        self._admin.delete("deviceclasses", _CLASS)

    def _run(self) -> None:
        try:
            while not self._over.wait(_ROUND_SECONDS):
                for domain in self._try("GET", f"/apis/{_API}/computedomains").get("items", ()):
                    self._reconcile(domain)
        except Exception as error:  # noqa: BLE001 - raised at the end, in the thread of the test
            self._error = error

    def _reconcile(self, domain: Json) -> None:
        metadata, template = domain["metadata"], _template(domain)
        namespace, name = metadata["namespace"], template["metadata"]["name"]
        own = f"/apis/{_API}/namespaces/{namespace}/computedomains/{metadata['name']}"
        # Applied, not created: the API server keeps opaque parameters as they are spelled, and a
        # patch that spells them otherwise would change the immutable spec.
        of_pods = f"/apis/{_CLAIMS}/namespaces/{namespace}/resourceclaimtemplates/{name}"
        if "deletionTimestamp" not in metadata:
            if _FINALIZER not in metadata.get("finalizers", ()):
                self._try("PATCH", own, _finalizers([_FINALIZER]))
                self._try("PATCH", f"{of_pods}?fieldManager={DRIVER}", template, _APPLY)
            return
        self._try("DELETE", of_pods)
        self._try("PATCH", of_pods, _finalizers(None))
        self._try("PATCH", own, _finalizers(None))

    def _try(self, method: str, path: str, body: Json | None = None, kind: str = _MERGE) -> Json:
        """The answer; empty where another client was faster, or the namespace or the CRD ends."""
        try:
            return self._rest.request(method, path, body, content_type=kind)
        except ApiError as error:
            if error.code not in _OVERTAKEN:
                raise
            return {}


def _finalizers(names: list[str] | None) -> Json:
    return {"metadata": {"finalizers": names}}


def _template(domain: Json) -> Json:
    """The ResourceClaimTemplate of the pods in the ComputeDomain."""
    metadata, channel = domain["metadata"], domain["spec"]["channel"]
    parameters = {
        "apiVersion": _API,
        "kind": "ComputeDomainChannelConfig",
        "domainID": metadata["uid"],
        "allocationMode": channel["allocationMode"],
    }
    opaque = {"driver": DRIVER, "parameters": parameters}
    devices = {
        "requests": [{"name": "channel", "exactly": {"deviceClassName": _CLASS}}],
        "config": [{"requests": ["channel"], "opaque": opaque}],
    }
    return {
        "apiVersion": _CLAIMS,
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": channel["resourceClaimTemplate"]["name"],
            "namespace": metadata["namespace"],
            "finalizers": [_FINALIZER],
            "labels": {_FINALIZER: metadata["uid"], f"{_FINALIZER}Target": "Workload"},
        },
        "spec": {"spec": {"devices": devices}},
    }


def _channel_class() -> Json:
    attributes = f'device.attributes["{DRIVER}"]'
    is_channel = f'{attributes}.type == "channel" && {attributes}.id == 0'
    expression = f'device.driver == "{DRIVER}" && {is_channel}'
    return device_class(_CLASS) | {"spec": {"selectors": [{"cel": {"expression": expression}}]}}


def _slice(node: str) -> Json:
    """The devices of a node: the channel of pods, and that of the driver's own daemon."""
    devices = [
        {"name": f"{kind}-0", "attributes": {"type": {"string": kind}, "id": {"int": 0}}}
        for kind in ("channel", "daemon")
    ]
    return raw_slice(node, devices, driver=DRIVER)
