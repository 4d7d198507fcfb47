"""Which engine runs a model where the operator chooses: engine_choice.yaml, which explains each
field."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.rules import Conditions, Release, RuleName
from tonnage.catalog.vllm.releases import parse_version


class EngineRule(Entry):
    """The engine to take where the conditions hold, and its evidence. `message` is a phrase with
    the placeholders of fit.legality.rule_matching.fill."""

    name: RuleName
    engine: str
    when: Conditions
    message: str
    evidence: Annotated[tuple[str, ...], Field(min_length=1)]
    checked: date
    since: Release | None = None
    until: Release | None = None

    def covers_release(self, version: str) -> bool:
        """Whether the rule is about that release of its engine."""
        numbers = parse_version(version)
        started = self.since is None or parse_version(self.since) <= numbers
        return started and (self.until is None or numbers <= parse_version(self.until))


class EngineRules(Entry):
    """The whole file."""

    compiled: date
    classes: Mapping[str, frozenset[str]]
    rules: tuple[EngineRule, ...]

    def has_class(self, engine: str, architecture: str) -> bool:
        """Whether the engine has code for the model class, as far as the file says."""
        classes = self.classes.get(engine)
        return classes is None or architecture in classes


@lru_cache(maxsize=1)
def load_engine_rules() -> EngineRules:
    """The file, read once. A pydantic.ValidationError is a mistake in the package."""
    return EngineRules.model_validate(read_data_file("engine_choice.yaml"))
