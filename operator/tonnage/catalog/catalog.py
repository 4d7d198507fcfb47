"""The catalogue: accelerators, images, releases and rules, by name."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.catalog.accelerator_names import is_named, suggest_names
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.models.architectures import Architectures
from tonnage.catalog.rules import CompatibilityRule
from tonnage.catalog.vllm.images import CudaVersion, VendorImage
from tonnage.catalog.vllm.quantization_methods import QuantizationMethods
from tonnage.catalog.vllm.releases import EngineRelease, parse_version

_MAX_SHOWN_CHARS: Final = 64


class UnknownAcceleratorError(ValueError):
    """None or several accelerators have that name; the message lists those that may be meant."""


class UnknownRuleError(ValueError):
    """No compatibility rule of that name; the message names the nearest ones that exist."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Accelerators by id, images by vendor, releases by version (oldest first), and the rules."""

    accelerators: Mapping[str, Accelerator]
    images: Mapping[Vendor, VendorImage]
    releases: Mapping[str, EngineRelease]
    default_release: str
    rules: tuple[CompatibilityRule, ...]
    quantization_methods: QuantizationMethods
    architectures: Architectures

    def accelerator(self, name: str) -> Accelerator:
        """The one accelerator of that name, as `accelerator_names` describes names.

        Raises UnknownAcceleratorError, also for a name of several.
        """
        accelerator, *others = self.accelerators_named(name)
        if others:
            ids = ", ".join(one.id for one in (accelerator, *others))
            shown = name[:_MAX_SHOWN_CHARS]
            raise UnknownAcceleratorError(
                f"accelerator {shown!r} is a name of {1 + len(others)}: expected one of {ids}"
            )
        return accelerator

    def accelerators_named(self, name: str) -> Sequence[Accelerator]:
        """All accelerators of that name, at least one, in the order of the catalogue.

        Raises UnknownAcceleratorError.
        """
        accelerator = self.accelerators.get(name)
        if accelerator is not None:
            return (accelerator,)
        named = [one for one in self.accelerators.values() if is_named(one, name)]
        if not named:
            near = suggest_names(name, self.accelerators.values())
            hint = f"did you mean: {', '.join(near)}? " if near else ""
            raise UnknownAcceleratorError(
                f"accelerator {name[:_MAX_SHOWN_CHARS]!r} is not in the catalogue; {hint}"
                "`tonnage accelerators` lists all"
            )
        return named

    def rule(self, name: str) -> CompatibilityRule:
        """The compatibility rule of that name.

        Raises UnknownRuleError.
        """
        match = next((rule for rule in self.rules if rule.name == name), None)
        if match is None:
            shown = name[:_MAX_SHOWN_CHARS]
            hint = _suggest(shown, [rule.name for rule in self.rules])
            raise UnknownRuleError(f"{shown!r} is no compatibility rule; {hint}")
        return match

    def release(self, version: str | None) -> EngineRelease:
        """The behaviour of that vLLM release; None is the default release.

        A version that is not listed behaves like the nearest older listed one, or like the oldest;
        `note` of the result says so. Raises ValueError for an invalid version.
        """
        if version is None:
            return self.releases[self.default_release]
        numbers = parse_version(version)
        listed = sorted(self.releases, key=parse_version)
        older = [known for known in listed if parse_version(known) <= numbers]
        nearest = self.releases[older[-1] if older else listed[0]]
        if parse_version(nearest.version) == numbers:
            return nearest
        number = version.removeprefix("v")
        note = f"vLLM {number} is not in the catalogue; planned like {nearest.version}"
        return replace(nearest, version=number, note=note)

    def with_default_release(self, version: str | None) -> "Catalog":
        """The catalogue with this release as the default; None leaves it as it is.

        A release that is not listed any more is planned like the nearest one (`release`).
        """
        if version in (None, self.default_release):
            return self
        releases = {**self.releases, version: self.release(version)}
        return replace(self, releases=releases, default_release=version)

    def image(self, vendor: Vendor, version: str | None, cuda: CudaVersion | None = None) -> str:
        """The vendor's image of that release, for example `vllm/vllm-openai:v0.32.0`.

        `cuda` is the CUDA version that the drivers support, None if unknown; it selects the build.
        """
        entry, release = self.images[vendor], self._release_number(version)
        build = entry.build(release, cuda)
        return f"{entry.repository}:v{release}{build.suffix if build else ''}"

    def oldest_driver(
        self, vendor: Vendor, version: str | None, cuda: CudaVersion | None
    ) -> int | None:
        """The oldest driver branch that runs the image that `image` returns for the same release
        and CUDA version, None where any driver may."""
        build = self.images[vendor].build(self._release_number(version), cuda)
        return self.images[vendor].oldest_driver(build) if build else None

    def _release_number(self, version: str | None) -> str:
        return (version or self.default_release).removeprefix("v")


def _suggest(name: str, known: Sequence[str]) -> str:
    """A hint with the names closest to `name`, or with all names."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return f"did you mean: {', '.join(close)}?" if close else f"expected one of {', '.join(known)}"
