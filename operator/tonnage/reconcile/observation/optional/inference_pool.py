"""Find the InferencePool of an object.

An object that never asked for a pool costs no request. While one may exist, the Service has an
annotation: the operator writes it before it creates the pool and removes it after the pool has
gone, so that no crash leaves a forgotten pool.
"""

from tonnage.api.conditions import Reason
from tonnage.api.gateway import InferencePoolSpec
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_INFERENCE_POOL, INFERENCE_DEPLOYMENT
from tonnage.api.parse import InvalidSpecError
from tonnage.kube.kinds import INFERENCE_POOLS
from tonnage.kube.protocol import NotFoundError, ObjectReader
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child, is_controlled_by, read_child
from tonnage.reconcile.observation.optional.optional_child import (
    TOLERATED,
    OptionalChildError,
    describe_error,
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
    name = inference_pool_name(key.name)
    try:
        body = await api.get(INFERENCE_POOLS, key.namespace, name)
    except TOLERATED as error:
        return describe_error(error, INFERENCE_POOLS)
    except NotFoundError:
        return None
    if is_controlled_by(body, uid):
        return read_child(body)
    message = (
        f"InferencePool {key.namespace}/{name} exists and is not controlled by this"
        " InferenceDeployment; the operator leaves it alone. Delete or rename it, or do not"
        " request one"
    )
    owners = body["metadata"].get("ownerReferences") or []
    # The garbage collector is about to remove the child of a deleted object of the same name.
    leftover = any(owner.get("kind") == INFERENCE_DEPLOYMENT for owner in owners)
    return OptionalChildError(Reason.NAME_CONFLICT, message, passing=leftover)


def _may_have_pool(service: Child | None) -> bool:
    """Whether a pool may exist next to the Service."""
    annotations = service.body["metadata"].get("annotations") or {} if service else {}
    return ANNOTATION_INFERENCE_POOL in annotations
