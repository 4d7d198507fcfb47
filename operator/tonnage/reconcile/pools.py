"""The AcceleratorPool objects: discovered ones are made, kept and removed; all get a status."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType
from tonnage.api.names import ACCELERATOR_POOL, API_VERSION, LABEL_DISCOVERED
from tonnage.api.pool import AcceleratorPoolStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import FleetSnapshot, Pool
from tonnage.fleet.node import read_node
from tonnage.fleet.pools import build_pools
from tonnage.fleet.report import discovered_pool_body, pool_readiness, pool_status
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import ApiError, ConflictError, KubeApi, Object
from tonnage.reconcile.actions import apply_if_changed
from tonnage.reconcile.children import read_child
from tonnage.reconcile.findings import Finding, make_conditions

_LOG: Final = logging.getLogger(__name__)


class PoolReporter:
    """Makes the AcceleratorPool objects say what the fleet is."""

    def __init__(
        self,
        api: KubeApi,
        snapshot: Callable[[], FleetSnapshot],
        catalog: Catalog,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self._catalog = catalog
        self._now = now

    async def report(self) -> None:
        """Bring all pool objects in line with the fleet; one that fails holds up no other."""
        pools = build_pools(self._snapshot(), self._catalog, excluding=None)
        objects = {
            found["metadata"]["name"]: found for found in await self._api.list(ACCELERATOR_POOLS)
        }
        for pool in pools:
            try:
                await self._report_one(pool, objects.get(pool.name))
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not reported: %s", pool.name, error)
        known = {pool.name for pool in pools}
        await self._remove(
            found for name, found in objects.items() if name not in known and _is_discovered(found)
        )

    async def _report_one(self, pool: Pool, live: Object | None) -> None:
        if pool.declared is None:
            live = await self._keep_discovered(pool, live)
        if live is None:  # declared, and deleted since the snapshot
            return
        status = self._status(pool, live).to_dict()
        if status != live.get("status"):
            metadata = {"name": pool.name, "uid": live["metadata"]["uid"]}
            body = {"apiVersion": API_VERSION, "kind": ACCELERATOR_POOL, "metadata": metadata}
            await self._api.apply_status(ACCELERATOR_POOLS, {**body, "status": status})

    async def _keep_discovered(self, pool: Pool, live: Object | None) -> Object:
        if live is not None and not _is_discovered(live):
            raise ConflictError("the name of a discovered pool is taken by a declared one")
        changes = apply_if_changed(
            ACCELERATOR_POOLS, discovered_pool_body(pool), read_child(live) if live else None
        )
        for change in changes:
            live = await self._api.apply(change.kind, change.body)
        assert live is not None, "a pool that does not exist is applied"
        return live

    def _status(self, pool: Pool, live: Object) -> AcceleratorPoolStatus:
        generation = live["metadata"]["generation"]
        readiness = pool_readiness(pool)
        finding = Finding(ConditionType.READY, readiness.ready, readiness.reason, readiness.message)
        before = (live.get("status") or {}).get("conditions") or []
        return pool_status(pool).model_copy(
            update={
                "observed_generation": generation,
                "conditions": make_conditions([finding], before, generation, self._now()),
            }
        )

    async def _remove(self, candidates: Iterable[Object]) -> None:
        """Remove discovered pools without nodes; nodes are read, the cache alone is no reason."""
        gone = list(candidates)
        if not gone:
            return
        nodes = tuple(read_node(found) for found in await self._api.list(NODES))
        declared = self._snapshot().declared_pools
        live = build_pools(
            FleetSnapshot(nodes=nodes, declared_pools=declared), self._catalog, excluding=None
        )
        still_there = {pool.name for pool in live}
        for found in gone:
            child = read_child(found)
            if child.name in still_there:
                continue
            try:
                await self._api.delete(
                    ACCELERATOR_POOLS, None, child.name, child.uid, child.resource_version
                )
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not removed: %s", child.name, error)


def _is_discovered(found: Object) -> bool:
    labels = found["metadata"].get("labels") or {}
    return labels.get(LABEL_DISCOVERED) == "true"
