"""Recognising a node's accelerator: labels of every vendor, modes and contradictions."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import H100, MI300X, nvidia_labels, raw_node
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.recognize import Recognised, Recogniser, Unrecognised
from tonnage.fleet.nodes.node import read_node

CATALOG = load_catalog()
_NAMING = ("device-id", "product-name", "gpu.product", "accelerator", "-name", "model", "-type")
AMD = {"amd.com/gpu": "8"}
NVIDIA = {"nvidia.com/gpu": "8"}


def recognise(labels: dict[str, Any], resources: dict[str, Any]) -> Any:
    return Recogniser(CATALOG).recognise(read_node(raw_node("n", labels, resources)))


@dataclass
class Card:
    labels: dict[str, str]
    want: str
    resources: dict[str, str] = field(default_factory=lambda: AMD)
    want_vf: bool = False
    want_selector: dict[str, tuple[str, ...]] | None = None


CARDS = {
    "MI300X as its node labeller writes": Card(
        MI300X, "mi300x", want_selector={"amd.com/gpu.device-id": ("74a1", "74a9")}
    ),
    "MI300X through a virtual function": Card(
        MI300X | {"amd.com/gpu.device-id": "74b5"},
        "mi300x",
        want_vf=True,
        want_selector={"amd.com/gpu.device-id": ("74b5", "74bd")},
    ),
    "MI308X with MI300X's memory": Card(
        {"amd.com/gpu.device-id": "74a2", "amd.com/gpu.vram": "192G"}, "mi308x"
    ),
    "an id in capitals with 0x": Card({"amd.com/gpu.device-id": "0x74A1"}, "mi300x"),
    "only a product name": Card({"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}, "mi300x"),
    "the older prefix alone": Card({"beta.amd.com/gpu.device-id": "74a5"}, "mi325x"),
    "the older counters alone": Card(
        {"beta.amd.com/gpu.device-id.74a1": "8", "beta.amd.com/gpu.vram.192G": "8"},
        "mi300x",
        want_selector={
            "beta.amd.com/gpu.device-id.74a1": ("8",),
            "beta.amd.com/gpu.vram.192G": ("8",),
        },
    ),
    "counters of one card with two ids": Card(
        {"amd.com/gpu.device-id.74a1": "4", "amd.com/gpu.device-id.74a9": "4"}, "mi300x"
    ),
    "a counter of nothing": Card(
        {"amd.com/gpu.device-id.74a1": "8", "amd.com/gpu.device-id.740f": "0"}, "mi300x"
    ),
    "only NFD's rule": Card({"feature.node.kubernetes.io/amd-gpu-mi300x": "true"}, "mi300x"),
    "NFD's rule and a virtual function": Card(
        {
            "feature.node.kubernetes.io/amd-gpu-mi300x": "true",
            "feature.node.kubernetes.io/amd-vgpu": "true",
        },
        "mi300x",
        want_vf=True,
    ),
    "the mixed resource of whole GPUs": Card(MI300X, "mi300x", {"amd.com/spx_nps1": "8"}),
    "744c with the memory of the XTX": Card(
        {"amd.com/gpu.device-id": "744c", "amd.com/gpu.vram": "24G"},
        "rx-7900-xtx",
        want_selector={"amd.com/gpu.device-id": ("744c",), "amd.com/gpu.vram": ("24G",)},
    ),
    "744c with the memory of the XT": Card(
        {"amd.com/gpu.device-id": "744c", "amd.com/gpu.vram": "20G"}, "rx-7900-xt"
    ),
    "H100 as GPU feature discovery writes": Card(H100, "h100-sxm-80gb", NVIDIA),
    "H100 with MIG mixed, this one whole": Card(
        H100 | {"nvidia.com/mig.strategy": "mixed"},
        "h100-sxm-80gb",
        {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"},
    ),
    "GKE without GPU feature discovery": Card(
        {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}, "h100-sxm-80gb", NVIDIA
    ),
    "GKE's and NVIDIA's labels agree": Card(
        H100 | {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, "h100-sxm-80gb", NVIDIA
    ),
    "Karpenter": Card({"karpenter.k8s.aws/instance-gpu-name": "l40s"}, "l40s", NVIDIA),
    "CoreWeave": Card({"gpu.nvidia.com/model": "H200"}, "h200-sxm-141gb", NVIDIA),
}


@pytest.mark.parametrize("case", CARDS.values(), ids=CARDS.keys())
def test_a_card_is_recognised(case: Card) -> None:
    recognition = recognise(case.labels, case.resources)
    assert isinstance(recognition, Recognised), recognition
    assert (recognition.accelerator.id, recognition.virtual_function) == (case.want, case.want_vf)
    if case.want_selector is not None:
        assert dict(recognition.selector) == case.want_selector


@dataclass
class UnrecognisedCard:
    labels: dict[str, str]
    want: str
    resources: dict[str, str] = field(default_factory=lambda: NVIDIA)


UNRECOGNISED_CARDS = {
    "no label at all": UnrecognisedCard({}, "no label names the accelerator"),
    "memory alone": UnrecognisedCard(
        {"nvidia.com/gpu.memory": "97871"}, "no label names the accelerator"
    ),
    "AMD memory and compute units alone": UnrecognisedCard(
        {"amd.com/gpu.vram": "192G", "amd.com/gpu.cu-count": "304"},
        "no label names the accelerator",
        AMD,
    ),
    "an unknown product": UnrecognisedCard(
        nvidia_labels("NVIDIA-X9000", 81559),
        "nvidia.com/gpu.product=NVIDIA-X9000 is no accelerator of the catalogue",
    ),
    "a product that begins like a known one": UnrecognisedCard(
        nvidia_labels("NVIDIA-H100-80GB-HBM3e", 81559), "is no accelerator of the catalogue"
    ),
    "an unknown id under a known name": UnrecognisedCard(
        MI300X | {"amd.com/gpu.device-id": "74ff"}, "is no accelerator of the catalogue", AMD
    ),
    "744c and nothing else": UnrecognisedCard(
        {"amd.com/gpu.device-id": "744c"}, "may be rx-7900-xt or rx-7900-xtx", AMD
    ),
    "two vendors' labels": UnrecognisedCard(H100 | MI300X, "labels contradict", AMD),
    "two vendors' resources": UnrecognisedCard(
        H100, "offers amd.com/gpu (8) and nvidia.com/gpu (8) at once", AMD | NVIDIA
    ),
    "another vendor's resource": UnrecognisedCard(H100, "labels contradict", AMD),
    "two cards of one vendor": UnrecognisedCard(
        H100 | {"cloud.google.com/gke-accelerator": "nvidia-l4"},
        "labels contradict: nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 is h100-sxm-80gb, "
        "cloud.google.com/gke-accelerator=nvidia-l4 is l4",
    ),
    "two cards in one node": UnrecognisedCard(
        {"amd.com/gpu.device-id.74a1": "4", "amd.com/gpu.device-id.740f": "4"},
        "labels contradict: amd.com/gpu.device-id.740f=4 is mi210, "
        "amd.com/gpu.device-id.74a1=4 is mi300x",
        AMD,
    ),
    "id and name disagree": UnrecognisedCard(
        MI300X | {"amd.com/gpu.product-name": "AMD_Instinct_MI325X_OAM"}, "labels contradict", AMD
    ),
    "compute units of another card": UnrecognisedCard(
        MI300X | {"amd.com/gpu.cu-count": "80"}, "has 304 compute units", AMD
    ),
    "time-slicing": UnrecognisedCard(
        nvidia_labels("NVIDIA-L40S-SHARED", 46068), "a share of a GPU is not a whole GPU"
    ),
    "time-slicing by the label for replicas": UnrecognisedCard(
        H100 | {"nvidia.com/gpu.replicas": "4"}, "nvidia.com/gpu.replicas=4"
    ),
    "MPS": UnrecognisedCard(
        H100 | {"nvidia.com/gpu.sharing-strategy": "mps"}, "nvidia.com/gpu.sharing-strategy=mps"
    ),
    "shared GPUs under their own name": UnrecognisedCard(
        H100, "offers nvidia.com/gpu.shared: a share of a GPU", {"nvidia.com/gpu.shared": "32"}
    ),
    "more devices than GPUs": UnrecognisedCard(
        H100, "offers 56 of nvidia.com/gpu but nvidia.com/gpu.count=8", {"nvidia.com/gpu": "56"}
    ),
    "a vGPU": UnrecognisedCard(
        H100 | {"nvidia.com/vgpu.present": "true"}, "a vGPU is not a whole GPU"
    ),
    "CPX by the number of devices": UnrecognisedCard(
        {"amd.com/gpu.device-id": "74a1"}, "offers 64 devices", {"amd.com/gpu": "64"}
    ),
}


@pytest.mark.parametrize("case", UNRECOGNISED_CARDS.values(), ids=UNRECOGNISED_CARDS.keys())
def test_an_ambiguous_card_is_not_guessed(case: UnrecognisedCard) -> None:
    recognition = recognise(case.labels, case.resources)
    assert isinstance(recognition, Unrecognised), recognition
    assert case.want in recognition.reason


def test_a_node_without_gpus_and_their_labels_is_not_recognised() -> None:
    assert recognise({}, {}) is None
    assert recognise({"node.kubernetes.io/instance-type": "m7i.large"}, {}) is None
    assert recognise({"nvidia.com/gpu.present": "false"}, {"nvidia.com/gpu": "0"}) is None


@dataclass
class Unplugged:
    labels: dict[str, str]
    want_accelerator: str
    want_label: str
    want_resource: str = "nvidia.com/gpu"
    resources: dict[str, str] = field(default_factory=dict)


UNPLUGGED = {
    "MI300X": Unplugged(MI300X, "mi300x", "amd.com/gpu.device-id=74a1", "amd.com/gpu"),
    "H100": Unplugged(H100, "h100-sxm-80gb", "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"),
    "a plugin that has gone": Unplugged(
        H100,
        "h100-sxm-80gb",
        "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
        resources={"nvidia.com/gpu": "0"},
    ),
    "only the label of a cloud": Unplugged(
        {"node.kubernetes.io/instance-type": "p5.48xlarge"},
        "h100-sxm-80gb",
        "node.kubernetes.io/instance-type=p5.48xlarge",
    ),
}


@pytest.mark.parametrize("case", UNPLUGGED.values(), ids=UNPLUGGED.keys())
def test_a_node_with_labels_of_gpus_and_without_a_device_plugin_is_unusable(
    case: Unplugged,
) -> None:
    recognition = recognise(case.labels, case.resources)
    assert isinstance(recognition, Recognised), recognition
    assert (recognition.accelerator.id, recognition.resource) == (
        case.want_accelerator,
        case.want_resource,
    )
    assert recognition.unusable == (
        f"has {case.want_label} but offers no {case.want_resource} (is the device plugin running?)"
    )


def test_a_node_that_only_says_that_it_has_gpus_names_both_missing_parts() -> None:
    recognition = recognise({"nvidia.com/gpu.present": "true"}, {})
    assert isinstance(recognition, Unrecognised)
    assert recognition.resource == "nvidia.com/gpu"
    assert recognition.reason == (
        "has nvidia.com/gpu.present=true but offers no nvidia.com/gpu (is the device plugin"
        " running?), and no label names the accelerator: nvidia.com/gpu.present=true does not"
        " identify it, and nvidia.com/gpu.product is missing, which GPU feature discovery writes"
    )


def identifying_labels() -> list[tuple[Accelerator, str, str]]:
    """All labels of the catalogue that name a card on their own."""
    return [
        (accelerator, match.label, value)
        for accelerator in CATALOG.accelerators.values()
        for match in accelerator.matches
        for value in match.values
        if match.label.endswith(_NAMING) and not match.shared and value != "a100"
    ]


@pytest.mark.parametrize(
    ("want", "label", "value"),
    identifying_labels(),
    ids=[value for _, _, value in identifying_labels()],
)
def test_every_identifying_label_of_the_catalogue_names_its_card(
    want: Accelerator, label: str, value: str
) -> None:
    recognition = recognise({label: value}, {want.resource: "1"})
    assert isinstance(recognition, Recognised), recognition
    assert recognition.accelerator is want


def complete_label_sets() -> list[Accelerator]:
    return [
        accelerator
        for accelerator in CATALOG.accelerators.values()
        if any(match.values for match in accelerator.matches)
    ]


@pytest.mark.parametrize(
    "accelerator", complete_label_sets(), ids=lambda accelerator: accelerator.id
)
def test_a_node_with_all_labels_of_an_accelerator_is_recognised(accelerator: Accelerator) -> None:
    labels = {match.label: match.values[0] for match in accelerator.matches if match.values}
    recognition = recognise(labels, {accelerator.resource: "1"})
    assert isinstance(recognition, Recognised), recognition
    assert recognition.accelerator is accelerator
