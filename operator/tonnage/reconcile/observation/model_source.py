"""Read the model's facts from the source in the spec: the Hub, a ConfigMap, or the object
itself. Read those of adapters from the Hub.

The Hub's facts are kept on the object's Service. So a Hub that does not answer after a restart, or
that does not accept the token any more, stops nothing that runs.
"""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tonnage import delays
from tonnage.api.conditions import Reason
from tonnage.api.model import (
    AdapterVolumeFacts,
    ConfigMapSource,
    HuggingFaceSource,
    InlineSource,
    Lora,
    ModelFacts,
    ModelSource,
    SecretKeyRef,
)
from tonnage.api.names import ANNOTATION_ADAPTER_FACTS, ANNOTATION_MODEL_FACTS
from tonnage.checkpoint.adapter import ADAPTER_CONFIG, AdapterFacts
from tonnage.checkpoint.facts import (
    CONFIG_KEY,
    adapter_from_config_map,
    checkpoint_from_config_map,
    checkpoint_from_inline,
)
from tonnage.checkpoint.kept_facts import decode_adapters, decode_facts
from tonnage.checkpoint.lookup import AdapterAnswer, ModelAnswer, ModelPending, ModelUnavailable
from tonnage.checkpoint.model import (
    Checkpoint,
    CheckpointError,
    UnsupportedArchitectureError,
)
from tonnage.kube.kinds import CONFIG_MAPS, SECRETS
from tonnage.kube.protocol import ForbiddenError, NotFoundError, ObjectReader
from tonnage.reconcile.observation.children import Child

AskModel = Callable[[HuggingFaceSource, str | None], ModelAnswer]
AskAdapter = Callable[[HuggingFaceSource, str | None], AdapterAnswer]


@dataclass(frozen=True, slots=True)
class ReadAdapter:
    """What the Hub, or a ConfigMap, says of an adapter; `answer` is None for one on a volume
    without facts. `unconfirmed` is why the Hub does not confirm facts that it gave earlier."""

    answer: AdapterAnswer | None
    unconfirmed: ModelUnavailable | None = None

    @property
    def facts(self) -> AdapterFacts | None:
        """The facts, None where they are unknown."""
        return self.answer if isinstance(self.answer, AdapterFacts) else None


class _Unreadable(Exception):  # noqa: N818 - carries an answer, it is not an error of the program
    def __init__(self, answer: ModelUnavailable) -> None:
        super().__init__(answer.message)
        self.answer = answer


async def read_model(
    api: ObjectReader, ask_hub: AskModel, namespace: str, source: ModelSource
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


async def read_adapters(
    api: ObjectReader, ask_hub: AskAdapter, namespace: str, lora: Lora | None
) -> tuple[ReadAdapter, ...]:
    """What the Hub, or the ConfigMap of a volume, says of each adapter, in the order of the
    spec."""
    adapters = lora.adapters if lora else ()
    # Adapters mostly share a Secret, and may share a ConfigMap.
    tokens: dict[SecretKeyRef | None, str | ModelUnavailable | None] = {}
    described: dict[AdapterVolumeFacts, ReadAdapter] = {}
    read = []
    for source in (adapter.source for adapter in adapters):
        hub = source.hugging_face
        if hub is None:
            volume = source.persistent_volume_claim
            facts = volume.facts if volume is not None else None
            if facts is not None and facts not in described:
                described[facts] = await _read_described(api, namespace, facts)
            read.append(described[facts] if facts is not None else ReadAdapter(None))
            continue
        ref = hub.token_secret_ref
        if ref not in tokens:
            tokens[ref] = await _read_token_or_why(api, namespace, ref)
        token = tokens[ref]
        answer = token if isinstance(token, ModelUnavailable) else ask_hub(hub, token)
        read.append(ReadAdapter(answer))
    return tuple(read)


async def _read_described(
    api: ObjectReader, namespace: str, facts: AdapterVolumeFacts
) -> ReadAdapter:
    """What the ConfigMap with the facts of an adapter says."""
    name = facts.config_map.name
    await asyncio.sleep(0)  # a kept one is read without waiting, and parsing takes long
    try:
        data = await _read_data(api, namespace, name, ADAPTER_CONFIG)
        return ReadAdapter(adapter_from_config_map(name, data))
    except _Unreadable as unreadable:
        return ReadAdapter(unreadable.answer)
    except CheckpointError as error:
        unavailable = ModelUnavailable(Reason.INVALID_MODEL, str(error), delays.REQUEUE_SOURCE)
        return ReadAdapter(unavailable)


def with_kept_adapters(
    read: tuple[ReadAdapter, ...], lora: Lora | None, service: Child | None
) -> tuple[ReadAdapter, ...]:
    """The same, with the facts that earlier answers left on the object's Service in place of those
    that the Hub does not give now."""
    if lora is None or service is None or all(one.facts or one.answer is None for one in read):
        return read
    annotations = service.body["metadata"].get("annotations") or {}
    kept = decode_adapters(annotations.get(ANNOTATION_ADAPTER_FACTS, ""))
    hubs = (adapter.source.hugging_face for adapter in lora.adapters)
    return tuple(
        _with_kept(one, kept.get((hub.repo, hub.revision)) if hub else None)
        for one, hub in zip(read, hubs, strict=True)
    )


def _with_kept(read: ReadAdapter, kept: AdapterFacts | None) -> ReadAdapter:
    match read.answer:
        case ModelPending() if kept is not None:
            return ReadAdapter(kept)
        case ModelUnavailable() if kept is not None and read.answer.reason is not (
            Reason.INVALID_MODEL
        ):
            return ReadAdapter(kept, unconfirmed=read.answer)
        case _:
            return read


async def _read_token_or_why(
    api: ObjectReader, namespace: str, ref: SecretKeyRef | None
) -> str | ModelUnavailable | None:
    try:
        return await _read_token(api, namespace, ref)
    except _Unreadable as unreadable:
        return unreadable.answer


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
    return checkpoint_from_config_map(
        source, await _read_data(api, namespace, source.name, CONFIG_KEY)
    )


async def _read_data(api: ObjectReader, namespace: str, name: str, key: str) -> Mapping[str, str]:
    """The data of a ConfigMap that has to have the key. Raises _Unreadable."""
    try:
        body = await api.get(CONFIG_MAPS, namespace, name)
    except NotFoundError:
        message = f"ConfigMap {namespace}/{name} not found; create it with key {key}"
        raise _Unreadable(
            ModelUnavailable(Reason.MODEL_NOT_FOUND, message, delays.REQUEUE_SOURCE)
        ) from None
    except ForbiddenError as error:
        message = (
            f"ConfigMap {namespace}/{name} may not be read by the operator; allow its role to get"
            f" it ({error})"
        )
        raise _Unreadable(
            ModelUnavailable(Reason.MODEL_ACCESS_DENIED, message, delays.REQUEUE_SOURCE)
        ) from None
    return body.get("data") or {}


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
