"""Which nodes the bound volumes of an object can be mounted on.

A disk of a zone is mounted in that zone only. A claim without a volume requires nothing: its volume
is created where the first pod runs, or its pods wait. Without the right to read claims or volumes
nothing is required, and the scheduler says why pods wait. A volume counts only where it names the
claim: a tenant may name any volume in a claim.
"""

import re
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, Final

from tonnage import delays
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.engines.adapters import adapter_claims
from tonnage.engines.compile_cache import compile_claim
from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.fleet.nodes.affinity import NodeRequirement, read_node_selector
from tonnage.kube.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from tonnage.kube.protocol import (
    ForbiddenError,
    NotFoundError,
    Object,
    ObjectReader,
    TransientError,
)
from tonnage.workloads.pod.patches import user_patch
from tonnage.workloads.pod.volumes import model_claim

ReadVolumes = Callable[[str, InferenceDeploymentSpec], Awaitable[tuple[NodeRequirement, ...]]]
"""Reads what the volumes of a spec in a namespace require of nodes."""

_Claim = tuple[str, str]
"""Namespace and name."""

_MAX_KEPT: Final = 4096
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


async def require_nothing(
    namespace: str, spec: InferenceDeploymentSpec
) -> tuple[NodeRequirement, ...]:
    """The requirements where no volume can be read."""
    return ()


class VolumeReader:
    """Reads claims and volumes, and keeps what bound volumes require for ten minutes, or until the
    API server answers: a bound volume seldom changes. For one event loop."""

    def __init__(self, live: ObjectReader, now: Callable[[], datetime]) -> None:
        self._live: Final = live
        self._now: Final = now
        self._kept: dict[_Claim, tuple[datetime, NodeRequirement | None]] = {}

    async def read(
        self, namespace: str, spec: InferenceDeploymentSpec
    ) -> tuple[NodeRequirement, ...]:
        """What the volumes of a spec require of nodes. Raises ApiError where that is not known
        from an earlier read: a replica would go where its volume is not."""
        requirements = [await self._read((namespace, name)) for name in sorted(claims_of(spec))]
        return tuple(each for each in requirements if each is not None)

    async def _read(self, claim: _Claim) -> NodeRequirement | None:
        now = self._now()
        kept = self._kept.get(claim)
        if kept is not None and (now - kept[0]).total_seconds() < delays.READ_VOLUMES:
            return kept[1]
        try:
            volume = await self._volume_of(claim)
        except NotFoundError:
            return None
        except ForbiddenError:
            volume = {}
        except TransientError:
            if kept is None:
                raise
            return kept[1]
        if volume is None:
            return None
        if len(self._kept) >= _MAX_KEPT:
            self._kept.clear()
        requirement = _requirement_of(claim, volume)
        self._kept[claim] = now, requirement
        return requirement

    async def _volume_of(self, claim: _Claim) -> Object | None:
        """The volume that is bound to the claim, None where there is none yet."""
        body = await self._live.get(PERSISTENT_VOLUME_CLAIMS, *claim)
        name = as_mapping(body.get("spec")).get("volumeName")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            return None
        volume = await self._live.get(PERSISTENT_VOLUMES, None, name)
        bound_to = as_mapping(as_mapping(volume.get("spec")).get("claimRef"))
        is_bound = (bound_to.get("namespace"), bound_to.get("name")) == claim
        return volume if is_bound else None


def claims_of(spec: InferenceDeploymentSpec) -> set[str]:
    """The names of the claims that the pods of a spec mount."""
    own = (model_claim(spec.model), compile_claim(spec), *adapter_claims(spec))
    return {*_names_in(user_patch(spec).spec), *(claim for claim in own if claim)}


def _names_in(pod: Any) -> Iterator[str]:
    for volume in as_sequence(as_mapping(pod).get("volumes")):
        name = as_mapping(as_mapping(volume).get("persistentVolumeClaim")).get("claimName")
        if isinstance(name, str) and _NAME.fullmatch(name):
            yield name


def _requirement_of(claim: _Claim, volume: Object) -> NodeRequirement | None:
    affinity = as_mapping(as_mapping(volume.get("spec")).get("nodeAffinity"))
    required = affinity.get("required")
    if required is None:
        return None
    return read_node_selector(f"PersistentVolumeClaim {claim[1]}", as_mapping(required))
