"""Where the InferencePool of an object may be, and what is there.

Who never asked for one costs no request. While there may be one, the Service bears a mark of it:
the mark is written before the pool is made and goes after the pool has gone, so that no crash
leaves a pool behind that nobody remembers.
"""

from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_INFERENCE_POOL
from tonnage.api.parse import InvalidSpecError
from tonnage.kube.kinds import INFERENCE_POOLS
from tonnage.kube.protocol import Object, ObjectReader
from tonnage.reconcile.children import Child
from tonnage.reconcile.key import Key
from tonnage.reconcile.optional_child import OptionalChildError, read_optional_child
from tonnage.render.names import inference_pool_name


def asked_pool(spec: InferenceDeploymentSpec | InvalidSpecError) -> InferencePoolSpec | None:
    """The pool that the spec asks for; None also where nobody can read what it asks for."""
    return None if isinstance(spec, InvalidSpecError) else spec.gateway.inference_pool


async def find_pool(
    api: ObjectReader,
    key: Key,
    uid: str,
    spec: InferenceDeploymentSpec | InvalidSpecError,
    service: Child | None,
) -> Child | OptionalChildError | None:
    """The pool of this object, or why it cannot be told; None where there is none to be looked for.

    Raises NotLeadingError and no other ApiError.
    """
    if asked_pool(spec) is None and not is_marked(service):
        return None
    return await read_optional_child(api, INFERENCE_POOLS, key, inference_pool_name(key.name), uid)


def is_marked(service: Child | None) -> bool:
    """Whether there may be a pool beside the Service."""
    annotations = service.body["metadata"].get("annotations") or {} if service else {}
    return ANNOTATION_INFERENCE_POOL in annotations


def with_mark(service: Object, name: str) -> Object:
    """The Service, with the name of the pool that there may be beside it."""
    metadata = service["metadata"]
    annotations = {**metadata.get("annotations", {}), ANNOTATION_INFERENCE_POOL: name}
    return {**service, "metadata": {**metadata, "annotations": annotations}}
