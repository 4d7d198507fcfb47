"""The catalogue: everything Tonnage knows about the world, looked up by name."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.catalog.architectures import Architectures
from tonnage.catalog.engine import EngineRelease, parse_version
from tonnage.catalog.images import CudaVersion, VendorImage
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.quantization_methods import QuantizationMethods
from tonnage.catalog.rules import CompatibilityRule

_MAX_SHOWN_CHARS: Final = 64


class UnknownAcceleratorError(ValueError):
    """No accelerator of that id; the message names the nearest ones that exist."""


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

    def accelerator(self, accelerator_id: str) -> Accelerator:
        """The accelerator of that id.

        Raises UnknownAcceleratorError.
        """
        found = self.accelerators.get(accelerator_id)
        if found is None:
            asked = accelerator_id[:_MAX_SHOWN_CHARS]
            hint = _nearest(asked, sorted(self.accelerators))
            raise UnknownAcceleratorError(f"accelerator {asked!r} is not in the catalogue; {hint}")
        return found

    def rule(self, name: str) -> CompatibilityRule:
        """The compatibility rule of that name.

        Raises UnknownRuleError.
        """
        found = next((rule for rule in self.rules if rule.name == name), None)
        if found is None:
            asked = name[:_MAX_SHOWN_CHARS]
            hint = _nearest(asked, [rule.name for rule in self.rules])
            raise UnknownRuleError(f"{asked!r} is no compatibility rule; {hint}")
        return found

    def release(self, version: str | None) -> EngineRelease:
        """How that vLLM release behaves; None is the default release.

        A version that is not listed behaves like the nearest older one that is, one older than all
        like the oldest; `note` of the result says so. Raises ValueError for what is no version.
        """
        if version is None:
            return self.releases[self.default_release]
        numbers = parse_version(version)
        listed = sorted(self.releases, key=parse_version)
        older = [known for known in listed if parse_version(known) <= numbers]
        nearest = self.releases[older[-1] if older else listed[0]]
        if parse_version(nearest.version) == numbers:
            return nearest
        asked = version.removeprefix("v")
        note = f"vLLM {asked} is not in the catalogue; planned like {nearest.version}"
        return replace(nearest, version=asked, note=note)

    def image(self, vendor: Vendor, version: str | None, cuda: CudaVersion | None = None) -> str:
        """The vendor's image of that release, for example `vllm/vllm-openai:v0.32.0`.

        `cuda` is what the drivers support, None when not known: older ones get the build for them.
        """
        entry = self.images[vendor]
        release = (version or self.default_release).removeprefix("v")
        return f"{entry.repository}:v{release}{entry.suffix(release, cuda)}"


def _nearest(asked: str, known: Sequence[str]) -> str:
    """What the writer may have meant, or everything there is."""
    near = difflib.get_close_matches(asked, known, n=3, cutoff=0.4)
    return f"did you mean: {', '.join(near)}?" if near else f"expected one of {', '.join(known)}"
