"""The model that a server loads, and the name under which it serves the model."""

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Model
from tonnage.engines.defaults import load_defaults
from tonnage.engines.medium import Medium


def served_name(spec: InferenceDeploymentSpec, owner_name: str) -> str:
    """The model name that clients send in requests."""
    return spec.model.name or owner_name


def loaded_model(spec: InferenceDeploymentSpec, owner_name: str, commit: str | None = None) -> str:
    """The repository id or path from which the server loads the model. `commit` is that of the
    repository, which is a part of the path on a claim."""
    source = spec.model.source
    if source.hugging_face:
        repo, cache = source.hugging_face.repo, spec.model.cache
        if cache is None:
            return repo
        is_image = cache.image is not None
        return load_defaults().model_volume_path if is_image else cached_path(repo, commit or "")
    if source.persistent_volume_claim:
        path = source.persistent_volume_claim.path
        root = load_defaults().model_volume_path
        return f"{root}/{path}" if path else root
    facts = source.config_map or source.inline
    return (facts.load_from if facts else None) or served_name(spec, owner_name)


def medium_of(spec: InferenceDeploymentSpec) -> Medium:
    """The medium by the source of the model: a PersistentVolumeClaim, also as its cache, an OCI
    image, a disk of the node, the URL of an object store, a path in the container, or else a
    repository."""
    if spec.model.cache is not None and spec.model.cache.image is not None:
        return Medium.IMAGE
    if spec.model.is_on_node_disk:
        return Medium.NODE_DISK
    if spec.model.source.persistent_volume_claim is not None or spec.model.cache is not None:
        return Medium.VOLUME
    model = loaded_model(spec, "")
    if "://" in model:
        return Medium.OBJECT_STORE
    return Medium.PATH if model.startswith("/") else Medium.HUB


def cached_path(repo: str, commit: str) -> str:
    """Where the files of a repository at a commit are in a container that mounts their claim."""
    return f"{load_defaults().model_volume_path}/{repo.replace('/', '--')}/{commit}"


def loaded_revision(model: Model) -> str | None:
    """The revision that the user pinned. None for a repository's main branch: if the pods had its
    current commit, every push to the repository would roll them; and for files in a cache."""
    repository = model.source.hugging_face
    if model.cache is not None:
        return None
    return repository.revision if repository and repository.revision != "main" else None
