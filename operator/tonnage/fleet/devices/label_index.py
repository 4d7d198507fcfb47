"""Maps labels to accelerators of the catalogue, and reads a node's labels by this index."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, LabelMatch
from tonnage.fleet.devices.resources import read_count

DEVICE_ID: Final = "amd.com/gpu.device-id"
PRODUCT_NAME: Final = "amd.com/gpu.product-name"
PRODUCT: Final = "nvidia.com/gpu.product"
MEMORY: Final = "nvidia.com/gpu.memory"
PARTITION: Final = "amd.com/gpu.compute-memory-partition"
CU_COUNT: Final = "amd.com/gpu.cu-count"
SIMD_COUNT: Final = "amd.com/gpu.simd-count"
VRAM: Final = "amd.com/gpu.vram"
ARCHITECTURE: Final = "kubernetes.io/arch"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
INSTANCE_GPU_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"

PRIMARY: Final = frozenset({DEVICE_ID, PRODUCT})
"""Labels in which a vendor's labeller identifies the device; an unknown value is an unknown card.
"""

_RANKED: Final[tuple[str, ...]] = (DEVICE_ID, PRODUCT, PRODUCT_NAME)

# Several cards share these: they decide between cards that other labels name, never alone.
_SUPPORTING: Final = (VRAM, CU_COUNT, SIMD_COUNT, MEMORY, INSTANCE_GPU_MEMORY, ARCHITECTURE)

# The AMD node labeller (ROCm/k8s-device-plugin, cmd/k8s-node-labeller/main.go) writes
# amd.com/gpu.KIND=VALUE, on a node with different cards amd.com/gpu.KIND.VALUE=COUNT, and both
# again under the older prefix beta.amd.com/; older ones leave out `gpu.` before the partition.
_AMD_PREFIX: Final = "amd.com/gpu."
_BETA: Final = "beta."
_AMD_KINDS: Final = (DEVICE_ID, PRODUCT_NAME, PARTITION, VRAM, CU_COUNT, SIMD_COUNT)
_PARTITION_BEFORE: Final = "amd.com/compute-memory-partition"

# Under the strategy mixed each MIG profile is a resource with labels of its own.
_MIG_PREFIX: Final = "nvidia.com/mig-"

# What GPU feature discovery adds to the product: `-MIG-1g.10gb` under the strategy single, and
# `-SHARED` for replicas (NVIDIA/k8s-device-plugin, internal/lm/resource.go).
_ADDED_TO_PRODUCT: Final = ("-SHARED", "-MIG-")

# The labels that are read; the others of these vendors (firmware, NVLink clique, timestamps) differ
# from node to node and change nothing.
_READ_PREFIXES: Final = (
    *(f"{beta}{kind}" for kind in _AMD_KINDS for beta in ("", _BETA)),
    _PARTITION_BEFORE,
    "feature.node.kubernetes.io/amd",
    *(
        f"nvidia.com/gpu.{name}"
        for name in ("present", "product", "memory", "count", "replicas", "sharing")
    ),
    _MIG_PREFIX,
    "nvidia.com/mig.config",
    "nvidia.com/vgpu.present",
    "nvidia.com/cuda.",
    "cloud.google.com/gke-",
    ARCHITECTURE,
)
_MAX_KEY_CHARS: Final = 100
_MAX_VALUE_CHARS: Final = 63


@dataclass(frozen=True, slots=True)
class CardLabel:
    """One fact that a node's labels state about its cards.

    `kind` is the label's name in the catalogue and `value` its value there; `key` and `raw` are
    the node's own label, which differs for the AMD labeller's counters and older names, and for
    what GPU feature discovery adds to a product.
    """

    kind: str
    value: str
    key: str
    raw: str

    def __str__(self) -> str:
        return show_label(self.key, self.raw)


def show_label(key: str, value: str) -> str:
    """Format a label for messages, cut where a malformed one is longer than Kubernetes allows."""
    return f"{key[:_MAX_KEY_CHARS]}={value[:_MAX_VALUE_CHARS]}"


@dataclass(frozen=True, slots=True)
class LabelIndex:
    """Label -> value -> ids of the accelerators that it identifies.

    `identifying` kinds name a card on their own, best first; `supporting` ones only decide
    between the cards that others name. `shared` are the (kind, value) pairs that other cards have
    too, `virtual` those of virtual functions.
    """

    catalog: Catalog
    identifying: tuple[str, ...]
    supporting: tuple[str, ...]
    accelerators: Mapping[str, Mapping[str, frozenset[str]]]
    shared: frozenset[tuple[str, str]]
    virtual: frozenset[tuple[str, str]]

    def matters(self, key: str) -> bool:
        """Whether a label can change how its node is recognised."""
        return key in self.accelerators or key.startswith(_READ_PREFIXES)

    def named_by(self, label: CardLabel) -> frozenset[str]:
        """Ids of the accelerators that the label may identify, none when its value is unknown."""
        return self.accelerators.get(label.kind, {}).get(label.value, frozenset())

    def is_shared(self, label: CardLabel) -> bool:
        """Whether cards outside the catalogue have the label's value too."""
        return (label.kind, label.value) in self.shared

    def is_virtual(self, label: CardLabel) -> bool:
        """Whether the label marks SR-IOV virtual functions."""
        return (label.kind, label.value) in self.virtual

    def values_like(self, label: CardLabel, accelerator_id: str) -> tuple[str, ...]:
        """All values for an accelerator of the label's kind: of virtual functions or of none."""
        virtual = self.is_virtual(label)
        return tuple(
            value
            for value, ids in self.accelerators[label.kind].items()
            if accelerator_id in ids and ((label.kind, value) in self.virtual) == virtual
        )


def index_labels(catalog: Catalog) -> LabelIndex:
    """Build the index of a catalogue."""
    table: dict[str, dict[str, frozenset[str]]] = {}
    shared, virtual = set(), set()
    for accelerator in catalog.accelerators.values():
        for match in accelerator.matches:
            values = table.setdefault(match.label, {})
            for value in (as_catalogued(match.label, value) for value in match.values):
                values[value] = values.get(value, frozenset()) | {accelerator.id}
                if match.shared:
                    shared.add((match.label, value))
                if _is_virtual(match, value, accelerator):
                    virtual.add((match.label, value))
    identifying = [kind for kind in _RANKED if kind in table]
    identifying += sorted(kind for kind in table if kind not in (*_RANKED, *_SUPPORTING))
    supporting = tuple(kind for kind in _SUPPORTING if kind in table)
    return LabelIndex(
        catalog, tuple(identifying), supporting, table, frozenset(shared), frozenset(virtual)
    )


def _is_virtual(match: LabelMatch, value: str, accelerator: Accelerator) -> bool:
    if match.label == DEVICE_ID:
        return value in accelerator.pci_device_ids_vf
    if match.label == PRODUCT_NAME:
        return value.endswith("_VF")
    return match.virtual_function


def read_card_labels(
    labels: Mapping[str, str], resource: str, index: LabelIndex
) -> tuple[CardLabel, ...]:
    """Read a node's labels about the cards behind a resource, identifying kinds first."""
    kinds = dict.fromkeys((*index.identifying, *_SUPPORTING, *_AMD_KINDS))
    cards = [card for kind in kinds for card in _read_kind(labels, kind, resource)]
    if DEVICE_ID not in {card.kind for card in cards}:
        cards += sorted(_read_counters(labels), key=lambda card: (card.kind, card.value))
        cards.sort(key=lambda card: list(kinds).index(card.kind))
    return tuple(cards)


def _read_kind(labels: Mapping[str, str], kind: str, resource: str) -> Iterator[CardLabel]:
    if kind in labels:
        yield CardLabel(kind, as_catalogued(kind, labels[kind]), kind, labels[kind])
    elif kind in _AMD_KINDS:
        for key in (_BETA + kind, _PARTITION_BEFORE if kind == PARTITION else ""):
            if key in labels:
                yield CardLabel(kind, as_catalogued(kind, labels[key]), key, labels[key])
    own = f"{resource}.product"
    if kind == PRODUCT and resource.startswith(_MIG_PREFIX) and own in labels:
        yield CardLabel(kind, as_catalogued(kind, labels[own]), own, labels[own])


def _read_counters(labels: Mapping[str, str]) -> Iterator[CardLabel]:
    """Read labels such as amd.com/gpu.device-id.74a1=8, the older twin only without the newer."""
    seen = set()
    for key in sorted(labels):  # "amd..." before "beta.amd..."
        name = key.removeprefix(_BETA)
        if not name.startswith(_AMD_PREFIX) or name in seen:
            continue
        kind = next((kind for kind in _AMD_KINDS if name.startswith(f"{kind}.")), None)
        if kind is not None and read_count(labels[key]):
            seen.add(name)
            value = as_catalogued(kind, name.removeprefix(f"{kind}."))
            yield CardLabel(kind, value, key, labels[key])


def as_catalogued(kind: str, value: str) -> str:
    """The value of a label as the catalogue has it."""
    if kind == DEVICE_ID:
        return value.lower().removeprefix("0x")
    if kind == PRODUCT:
        for addition in _ADDED_TO_PRODUCT:
            value = value.partition(addition)[0]
    return value
