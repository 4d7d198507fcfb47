"""Where the files of LoRA adapters are in the container of a server."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Adapter
from tonnage.engines.defaults import load_defaults


def adapter_path(adapter: Adapter, spec: InferenceDeploymentSpec) -> str:
    """What a server loads the adapter from: a folder in the container, or with updates Live the
    repository, which the server downloads then (vLLM's lora/utils.py get_adapter_absolute_path).

    Repository and revision name the folder: objects can share the volume of the cache, and a server
    keeps what it has cached of an adapter whose path does not change.
    """
    hub, claim = adapter.source.hugging_face, adapter.source.persistent_volume_claim
    if hub is not None and spec.lora is not None and spec.lora.is_live:
        return hub.repo
    if hub is not None:
        repo, revision = (part.replace("/", "--") for part in (hub.repo, hub.revision))
        return f"{load_defaults().cache.path}/adapters/{repo}/{revision}"
    assert claim is not None, "an adapter without a source passed validation"
    root = claim_path(claim.claim_name, spec)
    return f"{root}/{claim.path}" if claim.path else root


def claim_path(claim: str, spec: InferenceDeploymentSpec) -> str:
    """Where the volume of a claim with adapters is mounted: that of the model where it is the same
    claim."""
    model = spec.model.source.persistent_volume_claim
    if model is not None and model.claim_name == claim:
        return load_defaults().model_volume_path
    return f"{load_defaults().adapter_volume_path}/{claim}"


def adapter_claims(spec: InferenceDeploymentSpec) -> list[str]:
    """Claims with adapters other than the model's, each once."""
    model, claims = spec.model.source.persistent_volume_claim, spec.lora.claims if spec.lora else ()
    if spec.lora is not None and spec.lora.is_live:
        claims = tuple(sorted(claims))  # a change of the order changes no pod
    return [claim for claim in claims if model is None or claim != model.claim_name]
