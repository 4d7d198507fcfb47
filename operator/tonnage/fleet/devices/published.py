"""GPUs of ResourceSlices as the labels that would state the same.

So one catalogue identifies both, and what labels and ResourceSlices say of one node has to agree.
"""

from collections.abc import Mapping, Sequence

from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.fleet.devices.label_index import CardLabel, LabelIndex, as_catalogued
from tonnage.fleet.devices.partitions_mig import find_mig
from tonnage.fleet.devices.resources import ContradictionError, NotPlannableError
from tonnage.fleet.model import Node, PublishedGPUs


def published_as(node: Node, resource: str) -> PublishedGPUs | None:
    """The GPUs of ResourceSlices behind a resource; None for one of a device plugin.

    Raises NotPlannableError where the ResourceSlices say nothing that can be planned on.
    """
    published = next((one for one in node.published if one.resource == resource), None)
    if published is not None and published.refused is not None:
        raise NotPlannableError(published.refused, in_parts=True)
    return published


def add_facts(
    cards: Sequence[CardLabel], published: PublishedGPUs, index: LabelIndex
) -> tuple[CardLabel, ...]:
    """The labels of a node together with what its ResourceSlices state, each kind in turn."""
    facts = _facts_as_labels(published)
    kinds = {kind: place for place, kind in enumerate((*index.identifying, *index.supporting))}
    return tuple(sorted((*cards, *facts), key=lambda card: kinds.get(card.kind, len(kinds))))


def is_named(published: PublishedGPUs, accelerator: Accelerator, index: LabelIndex) -> bool:
    """Whether an attribute names the accelerator. Claims select GPUs by it, never by labels."""
    return any(
        fact.kind in index.identifying and accelerator.id in index.named_by(fact)
        for fact in _facts_as_labels(published)
    )


def _facts_as_labels(published: PublishedGPUs) -> list[CardLabel]:
    return [
        CardLabel(fact.label, as_catalogued(fact.label, fact.value), fact.attribute, fact.stated)
        for fact in published.facts
    ]


def explain_unidentified(published: PublishedGPUs) -> str:
    """Why the ResourceSlices do not name the accelerator."""
    driver = load_dra_drivers().by_name[published.driver]
    names = " or ".join(driver.qualify(one.attribute) for one in driver.attributes[:2])
    return f"no attribute of its ResourceSlices names the accelerator: expected {names}"


def check_published(
    published: PublishedGPUs,
    accelerator: Accelerator,
    labels: Mapping[str, str],
    labelled_cuda: CudaVersion | None,
) -> None:
    """Raise ContradictionError where the ResourceSlices contradict the accelerator or a label."""
    driver = load_dra_drivers().by_name[published.driver]
    if published.arch is not None and published.arch != accelerator.arch:
        raise ContradictionError(
            f"{driver.qualify(driver.arch or '')} says {published.arch}, but {accelerator.id} is "
            f"{accelerator.arch}"
        )
    mig = find_mig(published.resource, labels) if accelerator.vendor is Vendor.NVIDIA else None
    if mig is not None:
        raise ContradictionError(
            f"{mig.source} is a MIG device, but the ResourceSlices of {published.driver} list "
            f"whole GPUs ({driver.qualify('type')}={driver.whole_gpu})"
        )
    if published.cuda and labelled_cuda and published.cuda != labelled_cuda:
        by_slice, by_label = (".".join(map(str, one)) for one in (published.cuda, labelled_cuda))
        raise ContradictionError(
            f"{driver.qualify(driver.cuda or '')} is CUDA {by_slice}, the node's labels say "
            f"{by_label}: wait for the labeller, or restart it"
        )
