"""What the claims of one object's pods come from: ResourceClaimTemplates, and the ComputeDomains
whose driver makes such templates of the same name.

Their specs are immutable, so a change makes another one, before the workload that names it. An old
one stays until the new pods serve: until then, a rollback creates pods that claim by the old one. A
ComputeDomain stays as long as a pod uses it, too: its end would disconnect the GPUs. Without the
kind, or the permission for it, the operator writes none: it does not know which there are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tonnage.kube.kinds import COMPUTE_DOMAINS, RESOURCE_CLAIM_TEMPLATES
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.actions import Action, Apply, Delete, Stamped, apply_if_changed, stamped
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.template_record import template_of
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.claim_template import claim_template_names, render_claim_template
from tonnage.workloads.compute_domain import render_compute_domain

_KINDS: Final = {kind.kind: kind for kind in (RESOURCE_CLAIM_TEMPLATES, COMPUTE_DOMAINS)}


def render_claim_templates(
    observation: Observation, placed: Scheduled, workloads: Iterable[Object]
) -> tuple[Stamped, ...]:
    """The ResourceClaimTemplates and ComputeDomains of all placements that the workloads to run
    name."""
    named, owner = _named_by(workloads), owner_of(observation)
    rendered = (
        render(owner, each.option)
        for each in (placed, *placed.alone)
        for render in (render_claim_template, render_compute_domain)
    )
    return tuple(
        stamped(body) for body in rendered if body is not None and body["metadata"]["name"] in named
    )


def apply_claim_templates(observation: Observation, wanted: Iterable[Stamped]) -> Iterator[Apply]:
    """Create those that do not exist yet."""
    live = _live(observation)
    for body in wanted:
        kind = _KINDS[body["kind"]]
        if kind == COMPUTE_DOMAINS and not observation.has_compute_domains:
            continue
        yield from apply_if_changed(kind, body, live.get((kind, body["metadata"]["name"])))


def find_missing_claim_templates(
    observation: Observation, rendered: Iterable[Object]
) -> Iterator[Apply]:
    """Create those of the rendered ones that do not exist, and leave all others as they are."""
    live = _live(observation)
    missing = (
        body for body in rendered if (_KINDS[body["kind"]], body["metadata"]["name"]) not in live
    )
    yield from apply_claim_templates(observation, map(stamped, missing))


def delete_claim_templates(
    observation: Observation, workloads: Iterable[Object]
) -> Iterator[Action]:
    """Delete those that no workload names, once all replicas serve. At zero replicas nothing
    serves, and the plan that served last may still run again."""
    deployments = observation.deployments
    is_serving = any(deployment.ready > 0 for deployment in deployments)
    if not is_serving or not all(each.serves(each.wanted) for each in deployments):
        return
    live = (deployment.child.body for deployment in deployments)
    named = _named_by((*workloads, *live))
    of_pods = frozenset[str]().union(*(pod.claim_templates for pod in observation.pods))
    for (kind, name), child in _live(observation).items():
        is_used = kind == COMPUTE_DOMAINS and name in of_pods
        if name not in named and not is_used and not child.is_ending:
            yield Delete(kind, child)


def _live(observation: Observation) -> Mapping[tuple[Kind, str], Child]:
    templates = observation.claim_templates
    domains = observation.compute_domains if observation.has_compute_domains else ()
    return {
        **{(RESOURCE_CLAIM_TEMPLATES, child.name): child for child in templates},
        **{(COMPUTE_DOMAINS, child.name): child for child in domains},
    }


def _named_by(workloads: Iterable[Object]) -> frozenset[str]:
    templates = (claim_template_names(template_of(body)) for body in workloads)
    return frozenset().union(*templates)
