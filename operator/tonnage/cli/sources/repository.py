"""Reads the facts of a model in a repository on the Hub, with the token of the user."""

from pydantic import ValidationError

from tonnage.api.model import HuggingFaceSource
from tonnage.api.parse import describe_refused
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.hub.errors import HubInputs
from tonnage.checkpoint.hub.reader import (
    HubSettings,
    fetch_adapter,
    fetch_checkpoint,
    saved_token,
)
from tonnage.checkpoint.lookup import ModelLookupError
from tonnage.checkpoint.model import Checkpoint
from tonnage.cli.errors import InputError


def read_repository(repo: str, revision: str, flag: str) -> Checkpoint:
    """The model at that revision. Raises InputError naming `flag`, which gave the repository, or
    --revision."""
    source = _source(repo, revision, flag)
    try:
        inputs = _inputs(flag, "give its config.json by --config")
        return fetch_checkpoint(source, saved_token(), HubSettings(inputs=inputs))
    except ModelLookupError as error:
        raise InputError(error.message) from None


def read_adapter(repo: str, revision: str, flag: str) -> AdapterFacts:
    """The LoRA adapter at that revision. Raises InputError as `read_repository` does."""
    source = _source(repo, revision, flag)
    try:
        inputs = _inputs(flag, "read it on a volume by --pvc")
        return fetch_adapter(source, saved_token(), HubSettings(inputs=inputs))
    except ModelLookupError as error:
        raise InputError(error.message) from None


def _source(repo: str, revision: str, flag: str) -> HuggingFaceSource:
    try:
        return HuggingFaceSource(repo=repo, revision=revision)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = flag if first["loc"][-1] == "repo" else "--revision"
        raise InputError(f"{name} {describe_refused(first)}") from None


def _inputs(flag: str, alternative: str) -> HubInputs:
    return HubInputs(
        repository=flag,
        revision="--revision",
        token="HF_TOKEN",  # noqa: S106 - the name of a variable
        token_value="a token",  # noqa: S106 - a text
        alternative=alternative,
    )
