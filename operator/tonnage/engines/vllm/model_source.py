"""The model that vLLM loads, and the name under which it serves the model."""

from tonnage.api.inference import InferenceDeploymentSpec, ModelSource
from tonnage.engines.defaults import load_defaults


def served_name(spec: InferenceDeploymentSpec, owner_name: str) -> str:
    """The model name that clients send in requests."""
    return spec.model.name or owner_name


def loaded_model(spec: InferenceDeploymentSpec, owner_name: str) -> str:
    """The repository id or path that is the first argument of `vllm serve`."""
    source = spec.model.source
    if source.hugging_face:
        return source.hugging_face.repo
    if source.persistent_volume_claim:
        path = source.persistent_volume_claim.path
        root = load_defaults().model_volume_path
        return f"{root}/{path}" if path else root
    facts = source.config_map or source.inline
    return (facts.load_from if facts else None) or served_name(spec, owner_name)


def loaded_revision(source: ModelSource) -> str | None:
    """The revision that the user pinned. None for a repository's main branch: if the pods had its
    current commit, every push to the repository would roll them."""
    repository = source.hugging_face
    return repository.revision if repository and repository.revision != "main" else None
