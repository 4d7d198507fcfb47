"""The catalogue's label matches the other way round, and a node's labels read against them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fleet.resources import read_count

DEVICE_ID: Final = "amd.com/gpu.device-id"
PRODUCT_NAME: Final = "amd.com/gpu.product-name"
PRODUCT: Final = "nvidia.com/gpu.product"
PARTITION: Final = "amd.com/gpu.compute-memory-partition"
CU_COUNT: Final = "amd.com/gpu.cu-count"
VRAM: Final = "amd.com/gpu.vram"

PRIMARY: Final = frozenset({DEVICE_ID, PRODUCT})
"""What a vendor's labeller says of the device itself; an unknown value here is an unknown card."""

_RANKED: Final[tuple[str, ...]] = (DEVICE_ID, PRODUCT, PRODUCT_NAME)

# Several cards share these: they decide between cards that other labels name, never alone.
_SUPPORTING: Final = (
    VRAM,
    CU_COUNT,
    "amd.com/gpu.simd-count",
    "amd.com/gpu.family",
    "nvidia.com/gpu.memory",
    "nvidia.com/gpu.family",
    "kubernetes.io/arch",
)

# The AMD node labeller (ROCm/k8s-device-plugin, cmd/k8s-node-labeller/main.go) writes
# amd.com/gpu.KIND=VALUE, on a node with different cards amd.com/gpu.KIND.VALUE=COUNT, and both
# again under the older prefix beta.amd.com/; its README leaves out `gpu.` before the partition.
_AMD_PREFIX: Final = "amd.com/gpu."
_BETA: Final = "beta."
_AMD_KINDS: Final = (DEVICE_ID, PRODUCT_NAME, PARTITION, VRAM, CU_COUNT)
_PARTITION_AS_DOCUMENTED: Final = "amd.com/compute-memory-partition"
_VENDOR_PREFIXES: Final = (
    "amd.com/",
    "beta.amd.com/",
    "nvidia.com/",
    "feature.node.kubernetes.io/amd",
)


@dataclass(frozen=True, slots=True)
class CardLabel:
    """One thing that a node's labels say about its cards.

    `kind` is the label's name in the catalogue and `value` its value there; `key` and `raw` are
    what really stands on the node, which differs for the AMD labeller's counters and older names.
    """

    kind: str
    value: str
    key: str
    raw: str

    def __str__(self) -> str:
        return f"{self.key}={self.raw}"


@dataclass(frozen=True, slots=True)
class LabelIndex:
    """Label -> value -> ids of the accelerators that it stands for.

    `identifying` kinds name a card by themselves, best first; `supporting` ones only decide
    between the cards that others name.
    """

    catalog: Catalog
    identifying: tuple[str, ...]
    supporting: tuple[str, ...]
    accelerators: Mapping[str, Mapping[str, frozenset[str]]]

    def matters(self, key: str) -> bool:
        """Whether a label can change what its node is taken for."""
        return key in self.accelerators or key.startswith(_VENDOR_PREFIXES)

    def named_by(self, label: CardLabel) -> frozenset[str]:
        """Ids of the accelerators that the label may stand for, none when its value is unknown."""
        return self.accelerators.get(label.kind, {}).get(label.value, frozenset())

    def values_of(self, kind: str, accelerator_id: str) -> tuple[str, ...]:
        """All values of a label that stand for an accelerator, in the catalogue's order."""
        return tuple(
            value for value, ids in self.accelerators[kind].items() if accelerator_id in ids
        )


def index_labels(catalog: Catalog) -> LabelIndex:
    """Build the index of a catalogue."""
    table: dict[str, dict[str, frozenset[str]]] = {}
    for accelerator in catalog.accelerators.values():
        for match in accelerator.matches:
            values = table.setdefault(match.label, {})
            for value in match.values:
                known = _as_catalogued(match.label, value)
                values[known] = values.get(known, frozenset()) | {accelerator.id}
    identifying = [kind for kind in _RANKED if kind in table]
    identifying += sorted(kind for kind in table if kind not in (*_RANKED, *_SUPPORTING))
    supporting = tuple(kind for kind in _SUPPORTING if kind in table)
    return LabelIndex(catalog, tuple(identifying), supporting, table)


def read_card_labels(labels: Mapping[str, str], index: LabelIndex) -> tuple[CardLabel, ...]:
    """What a node's labels say about its cards: identifying kinds first, best first."""
    kinds = dict.fromkeys((*index.identifying, *index.supporting, *_AMD_KINDS))
    found = [label for kind in kinds for label in _read_kind(labels, kind)]
    if DEVICE_ID not in {label.kind for label in found}:
        counted = sorted(_read_counters(labels), key=lambda label: (label.kind, label.value))
        found += counted
        found.sort(key=lambda label: list(kinds).index(label.kind))
    return tuple(found)


def _read_kind(labels: Mapping[str, str], kind: str) -> Iterator[CardLabel]:
    if kind in labels:
        yield CardLabel(kind, _as_catalogued(kind, labels[kind]), kind, labels[kind])
    elif kind in _AMD_KINDS:
        for key in (_BETA + kind, _PARTITION_AS_DOCUMENTED if kind == PARTITION else ""):
            if key in labels:
                yield CardLabel(kind, _as_catalogued(kind, labels[key]), key, labels[key])


def _read_counters(labels: Mapping[str, str]) -> Iterator[CardLabel]:
    """Labels such as amd.com/gpu.device-id.74a1=8; the older twin only where it stands alone."""
    seen = set()
    for key in sorted(labels):  # "amd..." before "beta.amd..."
        name = key.removeprefix(_BETA)
        if not name.startswith(_AMD_PREFIX) or name in seen:
            continue
        kind = next((kind for kind in _AMD_KINDS if name.startswith(f"{kind}.")), None)
        if kind is not None and read_count(labels[key]):
            seen.add(name)
            value = _as_catalogued(kind, name.removeprefix(f"{kind}."))
            yield CardLabel(kind, value, key, labels[key])


def _as_catalogued(kind: str, value: str) -> str:
    return value.lower().removeprefix("0x") if kind == DEVICE_ID else value
