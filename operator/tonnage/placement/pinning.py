"""How a user says in which pool an object is to run."""

from collections.abc import Iterable

from tonnage.api.inference import PlacementSpec, PoolSelector
from tonnage.fleet.model import Pool


def pin(placement: PlacementSpec, pool: Pool, pools: Iterable[Pool]) -> PlacementSpec:
    """The placement that only this pool satisfies, as far as accelerator and labels tell it apart.

    Among pools of the same accelerator it takes one label that they do not all share, else all
    labels that the pool has.
    """
    assert pool.accelerator is not None, "placement chooses recognised pools only"
    pinned = placement.model_copy(update={"accelerators": [pool.accelerator.id]})
    rivals = [
        other
        for other in pools
        if other.name != pool.name
        and other.accelerator is not None
        and other.accelerator.id == pool.accelerator.id
    ]
    if not rivals:
        return pinned
    asked = placement.pool_selector.match_labels if placement.pool_selector else {}
    selector = PoolSelector(match_labels={**asked, **_distinguish(pool, rivals)})
    return pinned.model_copy(update={"pool_selector": selector})


def _distinguish(pool: Pool, rivals: Iterable[Pool]) -> dict[str, str]:
    others = list(rivals)
    for key, value in sorted(pool.labels.items()):
        if all(other.labels.get(key) != value for other in others):
            return {key: value}
    return dict(pool.labels)
