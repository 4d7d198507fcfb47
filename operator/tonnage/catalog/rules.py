"""Compatibility rules: combinations that do not run, or only with settings, though they may fit."""

from collections.abc import Collection, Mapping
from datetime import date
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints
from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT
from tonnage.catalog.models.architectures import ServedStatus
from tonnage.catalog.vllm.quantization_methods import MethodStatus
from tonnage.catalog.vllm.releases import parse_version

RuleName = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Za-z0-9]{2,62}$")]
Release = Annotated[str, StringConstraints(pattern=r"^\d+\.\d+\.\d+$")]


class Outcome(StrEnum):
    """The effect of a rule. A combination that no rule covers is allowed."""

    REFUSED = "refused"
    WARNED = "warned"
    SETTING = "setting"


@dataclass(frozen=True, slots=True, config=STRICT)
class Settings:
    """Settings that the server needs: environment variables, arguments, an image.

    `image` is an image of the vendor with a feature that the planned release lacks.
    """

    env: Mapping[str, str] = Field(default_factory=dict)
    args: tuple[str, ...] = ()
    image: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are no settings."""
        return not (self.env or self.args or self.image)

    def are_among(self, stated: Collection[str]) -> bool:
        """Whether `stated` has all arguments and variables (NAME=value), and no image is set."""
        required = (*self.args, *(f"{name}={value}" for name, value in self.env.items()))
        return self.image is None and all(setting in stated for setting in required)

    def joined(self, other: "Settings") -> "Settings":
        """Both combined; on a conflict the first one wins."""
        added = tuple(argument for argument in other.args if argument not in self.args)
        return Settings({**other.env, **self.env}, self.args + added, self.image or other.image)


class AdapterCondition(StrEnum):
    """What vLLM does with LoRA adapters that the user asks for."""

    REFUSED = "refused"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True, config=STRICT)
class Conditions:
    """The conditions of a rule, which must all hold; None is no condition.

    `archs` are shell patterns of the device's architecture, `below_capability` a CUDA compute
    capability (90 is sm_90; false for other architectures), `since` and `until` vLLM releases, both
    included. `adapters` holds only with LoRA adapters, which vLLM loads on the device or refuses.
    The others refer to the model and its options.
    """

    archs: tuple[str, ...] | None = None
    except_archs: tuple[str, ...] | None = None
    below_capability: int | None = None
    accelerators: frozenset[str] | None = None
    unsupported_accelerator: bool | None = None
    since: Release | None = None
    until: Release | None = None
    methods: frozenset[str] | None = None
    except_methods: frozenset[str] | None = None
    method_status: MethodStatus | None = None
    weight_formats: frozenset[str] | None = None
    activations: frozenset[str] | None = None
    desc_act: bool | None = None
    kv_cache_dtypes: frozenset[str] | None = None
    architectures: frozenset[str] | None = None
    except_architectures: frozenset[str] | None = None
    served: ServedStatus | None = None
    latent_attention: bool | None = None
    sparse_attention: bool | None = None
    experts: bool | None = None
    uncounted_memory: bool | None = None
    cuda_loader: bool | None = None
    adapters: AdapterCondition | None = None

    def covers_release(self, version: str) -> bool:
        """Whether the rule covers that vLLM release."""
        numbers = parse_version(version)
        started = self.since is None or parse_version(self.since) <= numbers
        return started and (self.until is None or numbers <= parse_version(self.until))


@dataclass(frozen=True, slots=True, config=STRICT)
class CompatibilityRule:
    """The outcome when the conditions hold, and its evidence.

    `message` and `instead` are sentences with the placeholders of fit.rule_matching.fill; `instead`
    says what would work. `by_vllm`: vLLM itself does not start, or not without the settings. Other
    refusals follow from the hardware, or no run of the combination is known. `evidence` names files
    of vLLM, issues and pages, read on `checked`. From release `expires` on the rule needs a review:
    it still applies, and its message says that it is older than the engine.
    """

    name: RuleName
    outcome: Outcome
    when: Conditions
    message: str
    evidence: Annotated[tuple[str, ...], Field(min_length=1)]
    checked: date
    expires: Release
    by_vllm: bool = False
    instead: str | None = None
    settings: Settings = Field(default_factory=Settings)

    def __post_init__(self) -> None:
        """Raises ValueError if the fields do not match the outcome."""
        if (self.outcome is Outcome.REFUSED) != (self.instead is not None):
            raise ValueError(f"rule {self.name}: `instead` belongs to what is refused")
        if (self.outcome is Outcome.SETTING) == self.settings.is_empty:
            raise ValueError(f"rule {self.name}: `settings` belong to outcome setting")
        if self.when == Conditions():
            raise ValueError(f"rule {self.name}: expected at least one condition")

    @property
    def concerns_model_class(self) -> bool:
        """Whether the rule depends on how vLLM serves the model's class, on whatever device."""
        return self.when.served is not None

    def is_expired(self, version: str) -> bool:
        """Whether the rule is older than that vLLM release."""
        return parse_version(version) >= parse_version(self.expires)
