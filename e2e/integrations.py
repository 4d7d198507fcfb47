"""The kinds of projects that Tonnage integrates with, as these projects publish them."""

from __future__ import annotations

from pathlib import Path

from e2e.harness.go_modules import module_folder

_CRDS = "integration-crds"
_INFERENCE_EXTENSION = "sigs.k8s.io/gateway-api-inference-extension"
_GATEWAY_API = "sigs.k8s.io/gateway-api"
_KEDA = "github.com/kedacore/keda/v2"


def inference_pool_crd() -> Path:
    """InferencePool of inference.networking.k8s.io/v1."""
    bases = module_folder(_CRDS, _INFERENCE_EXTENSION) / "config" / "crd" / "bases"
    return bases / "inference.networking.k8s.io_inferencepools.yaml"


def http_route_crd() -> Path:
    """HTTPRoute of gateway.networking.k8s.io/v1, of the standard channel."""
    bases = module_folder(_CRDS, _GATEWAY_API) / "config" / "crd" / "standard"
    return bases / "gateway.networking.k8s.io_httproutes.yaml"


def scaled_object_crd() -> Path:
    """KEDA's ScaledObject."""
    bases = module_folder(_CRDS, _KEDA) / "config" / "crd" / "bases"
    return bases / "keda.sh_scaledobjects.yaml"
