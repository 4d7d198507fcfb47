"""Find the InferencePool of an object.

An object that never asked for a pool costs no request. While one may exist, the Service has an
annotation: the operator writes it before it creates the pool and removes it after the pool has
gone, so that no crash leaves a forgotten pool.
"""

from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_INFERENCE_POOL
from tonnage.api.parse import InvalidSpecError
from tonnage.kube.kinds import INFERENCE_POOLS
from tonnage.kube.protocol import ObjectReader
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.optional.optional_child import (
    OptionalChildError,
    read_optional_child,
)
from tonnage.workloads.names import inference_pool_name


def requested_pool(spec: InferenceDeploymentSpec | InvalidSpecError) -> InferencePoolSpec | None:
    """The pool that the spec asks for; None also if the spec is invalid."""
    return None if isinstance(spec, InvalidSpecError) else spec.gateway.inference_pool


async def find_pool(
    api: ObjectReader,
    key: Key,
    uid: str,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    service: Child | None,
) -> Child | OptionalChildError | None:
    """Read the pool of this object, or why it cannot be read; None if there can be none.

    Raises NotLeadingError and no other ApiError.
    """
    if requested_pool(spec) is None and not _may_have_pool(service):
        return None
    return await read_optional_child(api, INFERENCE_POOLS, key, inference_pool_name(key.name), uid)


def _may_have_pool(service: Child | None) -> bool:
    """Whether a pool may exist next to the Service."""
    annotations = service.body["metadata"].get("annotations") or {} if service else {}
    return ANNOTATION_INFERENCE_POOL in annotations
