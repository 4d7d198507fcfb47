"""The AcceleratorPool objects: discovered ones are made, kept and removed; all get a status."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.names import ACCELERATOR_POOL, API_VERSION, LABEL_DISCOVERED
from tonnage.api.parse import InvalidSpecError
from tonnage.api.pool import AcceleratorPoolStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.fleet.node import read_node
from tonnage.fleet.report import (
    PoolReadiness,
    discovered_pool_body,
    pool_readiness,
    pool_status,
)
from tonnage.kube.kinds import ACCELERATOR_POOLS, NODES
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    KubeApi,
    NotFoundError,
    Object,
    Parts,
    Selection,
)
from tonnage.reconcile.actions import apply_if_changed, stamped
from tonnage.reconcile.children import read_child
from tonnage.reconcile.conditions import make_conditions
from tonnage.reconcile.findings import Finding

_LOG: Final = logging.getLogger(__name__)


class PoolReporter:
    """Makes the AcceleratorPool objects say what the fleet is."""

    def __init__(
        self,
        api: KubeApi,
        view: Callable[[], Fleet],
        catalog: Catalog,
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._view = view
        self._catalog = catalog
        self._now = now

    async def report(self) -> None:
        """Bring all pool objects in line with the fleet; one that fails holds up no other."""
        pools = self._view().pools()
        objects = {
            found["metadata"]["name"]: found
            for found in await self._api.list(ACCELERATOR_POOLS, labels=self._view().shard.labels)
        }
        for pool in pools:
            try:
                await self._report_one(pool, objects.get(pool.name))
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not reported: %s", pool.name, error)
        for name, found in objects.items():
            try:
                await self._report_unreadable(found)
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not reported: %s", name, error)
        known = {pool.name for pool in pools}
        await self._remove(
            found for name, found in objects.items() if name not in known and _is_discovered(found)
        )

    async def _report_one(self, pool: Pool, live: Object | None) -> None:
        if pool.declared is None:
            live = await self._keep_discovered(pool, live)
        if live is None:  # declared, and deleted since the snapshot
            return
        await self._tell(live, pool_status(pool), pool_readiness(pool))

    async def _report_unreadable(self, live: Object) -> None:
        """Tell the owner of a pool whose spec the API server let pass and that cannot be read."""
        try:
            read_declared_pool(live)
        except InvalidSpecError as error:
            readiness = PoolReadiness(False, Reason.INVALID_SPEC, str(error))
            await self._tell(live, AcceleratorPoolStatus(), readiness)

    async def _keep_discovered(self, pool: Pool, live: Object | None) -> Object:
        live = live or await self._find(pool.name)
        if live is not None and not (_is_discovered(live) and self._view().shard.has(live)):
            raise ConflictError(
                "the name of a discovered pool is taken by a declared one, or by another shard's"
            )
        wanted = stamped(discovered_pool_body(pool))
        changes = apply_if_changed(ACCELERATOR_POOLS, wanted, read_child(live) if live else None)
        for change in changes:
            live = await self._api.apply(change.kind, change.body)
        assert live is not None, "a pool that does not exist is applied"
        return live

    async def _find(self, name: str) -> Object | None:
        """Whoever has the name, also of another shard, whose pools are not listed."""
        try:
            return await self._api.get(ACCELERATOR_POOLS, None, name)
        except NotFoundError:
            return None

    async def _tell(
        self, live: Object, counts: AcceleratorPoolStatus, readiness: PoolReadiness
    ) -> None:
        """Write the status, where it is not what stands there."""
        metadata = live["metadata"]
        finding = Finding(ConditionType.READY, readiness.ready, readiness.reason, readiness.message)
        before = (live.get("status") or {}).get("conditions") or []
        conditions = make_conditions([finding], before, metadata["generation"], self._now())
        status = counts.model_copy(
            update={"observed_generation": metadata["generation"], "conditions": conditions}
        ).to_dict()
        if status != live.get("status"):
            body = {
                "apiVersion": API_VERSION,
                "kind": ACCELERATOR_POOL,
                "metadata": {"name": metadata["name"], "uid": metadata["uid"]},
                "status": status,
            }
            await self._api.apply_status(ACCELERATOR_POOLS, body)

    async def _remove(self, candidates: Iterable[Object]) -> None:
        """Remove discovered pools without nodes; nodes are read, the cache alone is no reason."""
        gone = list(candidates)
        if not gone:
            return
        live = Fleet(self._catalog, self._view().shard)
        selection = Selection(NODES, labels=self._view().shard.labels)
        await self._api.each(selection, Parts.PARTIAL, lambda node: live.put_node(read_node(node)))
        for declared in self._view().snapshot().declared_pools:
            live.declare(declared)
        still_there = {pool.name for pool in live.pools()}
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
