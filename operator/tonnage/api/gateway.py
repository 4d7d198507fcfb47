"""How a gateway finds the replicas: the kinds of the Gateway API that are made on request."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tonnage.api.pod import Name
from tonnage.api.schema import AS_A_NUMBER, ApiModel


class FailureMode(StrEnum):
    """What a gateway does with requests while the endpoint picker does not answer."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class ServicePort(ApiModel):
    """A port of a Service."""

    number: Annotated[int, Field(ge=1, le=65535), AS_A_NUMBER]
    """The Service's port, not that of its pods."""


class EndpointPickerRef(ApiModel):
    """The Service of an endpoint picker, in the namespace of the InferenceDeployment."""

    name: Name
    """Name of the Service."""
    port: ServicePort
    """Its port that speaks Envoy's external processing protocol."""
    failure_mode: FailureMode = FailureMode.FAIL_CLOSE
    """FailClose: requests are dropped while the picker does not answer. FailOpen: the gateway
    chooses a replica itself. Default: FailClose."""


class InferencePoolSpec(ApiModel):
    """What the InferencePool has beside the replicas themselves."""

    endpoint_picker_ref: EndpointPickerRef
    """The endpoint picker that chooses the replica for each request."""


class Gateway(ApiModel):
    """Objects of the Gateway API that are kept beside the replicas; the Service is there anyway."""

    inference_pool: InferencePoolSpec | None = None
    """An InferencePool (inference.networking.k8s.io/v1) of the object's own name, which an
    HTTPRoute can name as a backend. Default: none."""
