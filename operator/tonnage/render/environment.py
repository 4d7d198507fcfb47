"""The environment of the vLLM container."""

from collections.abc import Iterable
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec, ModelSource
from tonnage.api.pod import EnvVar
from tonnage.api.redact import without_credentials
from tonnage.render.api_form import api_form
from tonnage.render.defaults import defaults
from tonnage.render.errors import ReservedVariableError
from tonnage.render.lifetime import startup_seconds
from tonnage.render.model import RenderSettings
from tonnage.render.replica import Replica

Variable = dict[str, Any]


def environment(replica: Replica) -> list[Variable]:
    """Ours, then the pool's, then the user's: the last one of a name wins."""
    source, declared = replica.spec.model.source, replica.option.pool.declared
    ours = {
        **_cache(),
        **defaults().environment.every,
        **defaults().environment.architectures.get(replica.accelerator.arch, {}),
        # vLLM's own patience, 600 s by default, must last as long as the startup probe's.
        "VLLM_ENGINE_READY_TIMEOUT_S": str(startup_seconds(replica.model_gib)),
        **_hub(source, replica.settings),
        **replica.option.settings.env,
    }
    return _last_of_each_name(
        [
            *({"name": name, "value": value} for name, value in ours.items()),
            *_token(source),
            *_given(declared.env if declared else []),
            *_given(replica.spec.engine.vllm.env),
        ]
    )


def check_environment(spec: InferenceDeploymentSpec) -> None:
    """Refuse variables that would give the container GPUs of others. Raises
    ReservedVariableError."""
    for index, variable in enumerate(spec.engine.vllm.env):
        if variable.name in defaults().reserved_variables.names:
            raise ReservedVariableError(f"spec.engine.vllm.env[{index}].name", variable.name)


def _cache() -> dict[str, str]:
    cache = defaults().cache
    folders = {
        name: f"{cache.path}/{folder}" if folder else cache.path
        for name, folder in cache.folders.items()
    }
    return {**folders, "USER": cache.user}


def _hub(source: ModelSource, settings: RenderSettings) -> dict[str, str]:
    if source.persistent_volume_claim:
        return {"HF_HUB_OFFLINE": "1"}  # all of it lies on the volume; never ask the Hub for more
    if not settings.hf_endpoint:
        return {}
    # The operator's own password would be readable for everybody who may see a Deployment.
    return {"HF_ENDPOINT": without_credentials(settings.hf_endpoint)}


def _token(source: ModelSource) -> list[Variable]:
    """The Hub's token by reference: its value never passes through the operator."""
    secret = source.hugging_face.token_secret_ref if source.hugging_face else None
    if secret is None:
        return []
    return [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
        }
    ]


def _given(variables: Iterable[EnvVar]) -> list[Variable]:
    return [api_form(variable) for variable in variables]


def _last_of_each_name(variables: Iterable[Variable]) -> list[Variable]:
    """One variable a name, where its last one stood: `$(NAME)` refers to variables before it."""
    found: dict[str, Variable] = {}
    for variable in variables:
        found.pop(variable["name"], None)
        found[variable["name"]] = variable
    return list(found.values())
