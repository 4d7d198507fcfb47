"""Quantisation methods: which vLLM releases know them, where they are listed, what they need."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic.dataclasses import dataclass

from tonnage.catalog.engine import parse_version
from tonnage.catalog.model import STRICT


class MethodStatus(StrEnum):
    """What a vLLM release makes of a quantisation method."""

    SERVED = "served"
    UNKNOWN = "unknown"
    """No release has ever known it."""
    NEWER = "newer"
    """A later release brought it."""
    REMOVED = "removed"
    PLUGIN = "plugin"
    """It left vLLM for a plugin that the vendors' images do not contain."""
    DEPRECATED = "deprecated"
    """Taken only when vLLM is told that its end is known."""
    UNLISTED = "unlisted"
    """Not among the methods that vLLM's platform accepts."""
    BELOW_CAPABILITY = "below-capability"
    """The device's compute capability is too low for it."""
    MISMATCHED = "mismatched"
    """Asked for, but the checkpoint is quantised in another way."""
    NOT_ONLINE = "not-online"
    """Asked for, but a 16-bit checkpoint cannot be quantised so while it is loaded."""


@dataclass(frozen=True, slots=True, config=STRICT)
class ReleaseSpan:
    """The releases from `since` to `until`, both included; None is open."""

    since: str | None = None
    until: str | None = None

    def covers(self, version: str) -> bool:
        """Whether that release is one of them."""
        return not self.begins_after(version) and not self.ended_before(version)

    def begins_after(self, version: str) -> bool:
        """Whether all of them are newer."""
        return self.since is not None and parse_version(version) < parse_version(self.since)

    def ended_before(self, version: str) -> bool:
        """Whether all of them are older."""
        return self.until is not None and parse_version(version) > parse_version(self.until)


@dataclass(frozen=True, slots=True, config=STRICT)
class QuantizationMethod:
    """One method by vLLM's name for it.

    `known` are the releases that have it, `rocm` those whose ROCm platform lists it, `deprecated`
    those that want to be told. `minimum_capability` is CUDA's (75 is sm_75), None where there is
    none. `plugin` names what has it now.
    """

    known: ReleaseSpan
    rocm: ReleaseSpan | None = None
    deprecated: ReleaseSpan | None = None
    minimum_capability: int | None = None
    plugin: str | None = None

    def status(self, version: str) -> MethodStatus:
        """What that release makes of it wherever it runs."""
        if self.known.begins_after(version):
            return MethodStatus.NEWER
        if self.known.ended_before(version):
            return MethodStatus.PLUGIN if self.plugin else MethodStatus.REMOVED
        return MethodStatus.SERVED


@dataclass(frozen=True, slots=True, config=STRICT)
class QuantizationMethods:
    """All methods by name. Each of `families` lists the names that one method goes by."""

    methods: Mapping[str, QuantizationMethod]
    families: tuple[frozenset[str], ...]

    def same(self, one: str, other: str) -> bool:
        """Whether both names are of one method."""
        return one == other or any(one in family and other in family for family in self.families)

    def resolve(self, name: str, version: str) -> tuple[str, QuantizationMethod] | None:
        """The method of that name, under the name that the release has for it; None for no method.

        Source: override_quantization_method of vLLM's methods (`auto-round` is `inc` since 0.19).
        """
        own = self.methods.get(name)
        if own is not None and own.known.covers(version):
            return name, own
        for alias in sorted(self.methods):
            if self.same(alias, name) and self.methods[alias].known.covers(version):
                return alias, self.methods[alias]
        return None if own is None else (name, own)
