"""The objects of the Gateway API that the operator creates."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tonnage.api.pod import Name
from tonnage.api.schema import STRICT_NUMBER, ApiModel


class FailureMode(StrEnum):
    """How a gateway handles requests while the endpoint picker does not respond."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class ServicePort(ApiModel):
    """A port of a Service."""

    number: Annotated[int, Field(ge=1, le=65535), STRICT_NUMBER]
    """Port number of the Service, not of its pods."""


class EndpointPickerRef(ApiModel):
    """The Service of an endpoint picker, in the namespace of the InferenceDeployment."""

    name: Name
    """Name of the Service."""
    port: ServicePort
    """Port for Envoy's external processing protocol."""
    failure_mode: FailureMode = FailureMode.FAIL_CLOSE
    """While the endpoint picker does not respond, FailClose drops requests, and FailOpen lets the
    gateway choose the replica. Default: FailClose."""


class InferencePoolSpec(ApiModel):
    """Settings of the InferencePool."""

    endpoint_picker_ref: EndpointPickerRef
    """Endpoint picker that chooses the replica for each request."""


class Gateway(ApiModel):
    """Objects of the Gateway API that the operator creates in addition to the Service."""

    inference_pool: InferencePoolSpec | None = None
    """Creates an InferencePool (inference.networking.k8s.io/v1) with the name of the
    InferenceDeployment, as a backend for HTTPRoutes. Default: none."""
