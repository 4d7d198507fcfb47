"""Read the model's facts from the source in the spec: the Hub, a ConfigMap, or the object
itself.

The Hub's facts are kept on the object's Service. So a Hub that does not answer after a restart, or
that does not accept the token any more, stops nothing that runs.
"""

import base64
from collections.abc import Callable

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.inference import (
    ConfigMapSource,
    HuggingFaceSource,
    InlineSource,
    ModelFacts,
    ModelSource,
    SecretKeyRef,
)
from tonnage.api.names import ANNOTATION_MODEL_FACTS
from tonnage.checkpoint.facts import checkpoint_from_config_map, checkpoint_from_inline
from tonnage.checkpoint.kept_facts import decode_facts
from tonnage.checkpoint.lookup import ModelAnswer, ModelUnavailable
from tonnage.checkpoint.model import (
    Checkpoint,
    CheckpointError,
    UnsupportedArchitectureError,
)
from tonnage.kube.kinds import CONFIG_MAPS, SECRETS
from tonnage.kube.protocol import ForbiddenError, NotFoundError, ObjectReader
from tonnage.reconcile.observation.children import Child

HubLookup = Callable[[HuggingFaceSource, str | None], ModelAnswer]
"""Looks up a source with a token on the Hub without waiting; returns what is known now."""


class _Unreadable(Exception):  # noqa: N818 - carries an answer, it is not an error of the program
    def __init__(self, answer: ModelUnavailable) -> None:
        super().__init__(answer.message)
        self.answer = answer


async def read_model(
    api: ObjectReader, ask_hub: HubLookup, namespace: str, source: ModelSource
) -> ModelAnswer:
    """The checkpoint's facts, that they are being read, or why they are unavailable."""
    try:
        if source.hugging_face is not None:
            token = await _read_token(api, namespace, source.hugging_face.token_secret_ref)
            return ask_hub(source.hugging_face, token)
        return await _read_facts(api, namespace, source)
    except _Unreadable as unreadable:
        return unreadable.answer
    except UnsupportedArchitectureError as error:
        return ModelUnavailable(Reason.UNSUPPORTED_ARCHITECTURE, str(error), None)
    except CheckpointError as error:
        return ModelUnavailable(Reason.INVALID_MODEL, str(error), _retry_after(source))


def with_kept_facts(
    answer: ModelAnswer, source: ModelSource, service: Child | None
) -> tuple[ModelAnswer, ModelUnavailable | None]:
    """The answer, or the facts that an earlier answer of the Hub left on the object's Service, and
    then why the Hub does not confirm them; None while it is being read."""
    hub = source.hugging_face
    if isinstance(answer, Checkpoint) or hub is None or service is None:
        return answer, None
    annotations = service.body["metadata"].get("annotations") or {}
    kept = decode_facts(annotations.get(ANNOTATION_MODEL_FACTS, ""), hub.repo, hub.revision)
    if kept is None:
        return answer, None
    return kept, answer if isinstance(answer, ModelUnavailable) else None


async def _read_facts(api: ObjectReader, namespace: str, source: ModelSource) -> Checkpoint:
    facts: ModelSource | ModelFacts = source
    if source.persistent_volume_claim is not None:
        facts = source.persistent_volume_claim.facts
    if facts.config_map is not None:
        return await _read_config_map(api, namespace, facts.config_map)
    return checkpoint_from_inline(_inline(facts))


def _inline(facts: ModelSource | ModelFacts) -> InlineSource:
    if facts.inline is None:  # the models allow no other choice
        raise AssertionError("a source without any choice passed validation")
    return facts.inline


def _retry_after(source: ModelSource) -> float | None:
    """Seconds until a retry: inline facts change only with the spec; a ConfigMap may change at any
    time."""
    facts = source.persistent_volume_claim.facts if source.persistent_volume_claim else source
    return None if facts.inline is not None else delays.REQUEUE_SOURCE


async def _read_config_map(
    api: ObjectReader, namespace: str, source: ConfigMapSource
) -> Checkpoint:
    try:
        body = await api.get(CONFIG_MAPS, namespace, source.name)
    except NotFoundError:
        message = f"ConfigMap {namespace}/{source.name} not found; create it with key config.json"
        raise _Unreadable(
            ModelUnavailable(Reason.MODEL_NOT_FOUND, message, delays.REQUEUE_SOURCE)
        ) from None
    except ForbiddenError as error:
        message = (
            f"ConfigMap {namespace}/{source.name} may not be read by the operator; allow its role"
            f" to get it ({error})"
        )
        raise _Unreadable(
            ModelUnavailable(Reason.MODEL_ACCESS_DENIED, message, delays.REQUEUE_SOURCE)
        ) from None
    return checkpoint_from_config_map(source, body.get("data") or {})


async def _read_token(api: ObjectReader, namespace: str, ref: SecretKeyRef | None) -> str | None:
    if ref is None:
        return None
    try:
        data = (await api.get(SECRETS, namespace, ref.name)).get("data") or {}
        return base64.b64decode(data[ref.key], validate=True).decode().strip()
    except NotFoundError:
        problem = "not found; create it in the namespace of the InferenceDeployment"
    except ForbiddenError as error:
        problem = (
            "may not be read by the operator; a Role in this namespace can allow its ServiceAccount"
            f" to get this Secret ({error})"
        )
    except KeyError:
        problem = f"has no key {ref.key}"
    except ValueError:  # of base64, and of UTF-8
        problem = f"key {ref.key} is not text"
    message = f"Secret {namespace}/{ref.name} {problem}"
    raise _Unreadable(ModelUnavailable(Reason.MODEL_ACCESS_DENIED, message, delays.REQUEUE_SOURCE))
