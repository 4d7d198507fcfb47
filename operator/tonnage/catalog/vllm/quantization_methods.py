"""Quantisation methods: the vLLM releases and platforms that support them."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic.dataclasses import dataclass

from tonnage.catalog.model import STRICT
from tonnage.catalog.vllm.releases import parse_version


class MethodStatus(StrEnum):
    """The support of a quantisation method in a vLLM release."""

    SERVED = "served"
    UNKNOWN = "unknown"
    """No release has had it."""
    NEWER = "newer"
    """A later release added it."""
    REMOVED = "removed"
    PLUGIN = "plugin"
    """It moved from vLLM to a plugin that the vendors' images do not contain."""
    DEPRECATED = "deprecated"
    """vLLM accepts it only with --allow-deprecated-quantization."""
    UNLISTED = "unlisted"
    """The device's platform in vLLM does not list it."""
    BELOW_CAPABILITY = "below-capability"
    """The device's compute capability is too low for it."""
    MISMATCHED = "mismatched"
    """Requested, but the checkpoint has another quantisation."""
    NOT_ONLINE = "not-online"
    """Requested, but vLLM cannot quantise a 16-bit checkpoint this way while loading."""


@dataclass(frozen=True, slots=True, config=STRICT)
class ReleaseSpan:
    """The releases from `since` to `until`, both included; None is unbounded."""

    since: str | None = None
    until: str | None = None

    def covers(self, version: str) -> bool:
        """Whether the span includes that release."""
        return not self.begins_after(version) and not self.ended_before(version)

    def begins_after(self, version: str) -> bool:
        """Whether all releases of the span are newer."""
        return self.since is not None and parse_version(version) < parse_version(self.since)

    def ended_before(self, version: str) -> bool:
        """Whether all releases of the span are older."""
        return self.until is not None and parse_version(version) > parse_version(self.until)


@dataclass(frozen=True, slots=True, config=STRICT)
class QuantizationMethod:
    """One method by vLLM's name for it.

    `known` are the releases that have it, `rocm` those whose ROCm platform lists it, `deprecated`
    those that need --allow-deprecated-quantization. `minimum_capability` is a CUDA compute
    capability (75 is sm_75), None without a minimum. `plugin` names the plugin that has it now.
    """

    known: ReleaseSpan
    rocm: ReleaseSpan | None = None
    deprecated: ReleaseSpan | None = None
    minimum_capability: int | None = None
    plugin: str | None = None

    def status(self, version: str) -> MethodStatus:
        """Its support in that release, independent of the device."""
        if self.known.begins_after(version):
            return MethodStatus.NEWER
        if self.known.ended_before(version):
            return MethodStatus.PLUGIN if self.plugin else MethodStatus.REMOVED
        return MethodStatus.SERVED


@dataclass(frozen=True, slots=True, config=STRICT)
class QuantizationMethods:
    """All methods by name. Each of `families` lists the names of one method."""

    methods: Mapping[str, QuantizationMethod]
    families: tuple[frozenset[str], ...]

    def same(self, one: str, other: str) -> bool:
        """Whether both names mean the same method."""
        return one == other or any(one in family and other in family for family in self.families)

    def resolve(self, name: str, version: str) -> tuple[str, QuantizationMethod] | None:
        """The method of that name with the release's own name for it; None for an unknown method.

        Source: override_quantization_method of vLLM's methods (`auto-round` is `inc` since 0.19).
        """
        own = self.methods.get(name)
        if own is not None and own.known.covers(version):
            return name, own
        for alias in sorted(self.methods):
            if self.same(alias, name) and self.methods[alias].known.covers(version):
                return alias, self.methods[alias]
        return None if own is None else (name, own)
