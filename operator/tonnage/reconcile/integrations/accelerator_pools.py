"""Report the AcceleratorPool objects: create, keep and delete the discovered ones; give all a
status."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.names import ACCELERATOR_POOL, API_VERSION, LABEL_DISCOVERED
from tonnage.api.parse import InvalidSpecError
from tonnage.api.pool import AcceleratorPoolStatus
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import RenderSettings
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.pools.report import (
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
    ObjectParts,
    Selection,
)
from tonnage.reconcile.actions import apply_if_changed, stamped
from tonnage.reconcile.observation.children import read_child
from tonnage.reconcile.observation.findings import Finding
from tonnage.reconcile.status.conditions import make_conditions
from tonnage.workloads.pod.pool_check import explain_pool_template

_LOG: Final = logging.getLogger(__name__)


class PoolReporter:
    """Keeps the AcceleratorPool objects in line with the fleet."""

    def __init__(
        self,
        api: KubeApi,
        view: Callable[[], Fleet],
        catalog: Catalog,
        now: Callable[[], datetime],
        settings: RenderSettings,
    ) -> None:
        self._settings = settings
        self._api = api
        self._view = view
        self._catalog = catalog
        self._now = now

    async def report(self) -> None:
        """Bring all pool objects in line with the fleet; a failure on one stops no other."""
        pools = self._view().pools()
        objects = {
            body["metadata"]["name"]: body
            for body in await self._api.list(ACCELERATOR_POOLS, labels=self._view().shard.labels)
        }
        for pool in pools:
            try:
                await self._report_one(pool, objects.get(pool.name))
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not reported: %s", pool.name, error)
        for name, body in objects.items():
            try:
                await self._report_unreadable(body)
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not reported: %s", name, error)
        known = {pool.name for pool in pools}
        await self._remove(
            body for name, body in objects.items() if name not in known and _is_discovered(body)
        )

    async def _report_one(self, pool: Pool, live: Object | None) -> None:
        if pool.declared is None:
            live = await self._keep_discovered(pool, live)
        if live is None:  # declared, and deleted since the snapshot
            return
        refused = explain_pool_template(pool, self._settings)
        readiness = pool_readiness(pool)
        if refused is not None:
            readiness = PoolReadiness(False, Reason.INVALID_SPEC, refused)
        await self._write_status(live, pool_status(pool), readiness)

    async def _report_unreadable(self, live: Object) -> None:
        """Report a pool whose spec passed the API server but cannot be read."""
        try:
            read_declared_pool(live)
        except InvalidSpecError as error:
            readiness = PoolReadiness(False, Reason.INVALID_SPEC, str(error))
            await self._write_status(live, AcceleratorPoolStatus(), readiness)

    async def _keep_discovered(self, pool: Pool, live: Object | None) -> Object:
        live = live or await self._get(pool.name)
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

    async def _get(self, name: str) -> Object | None:
        """The pool of this name, also of another shard, whose pools are not listed."""
        try:
            return await self._api.get(ACCELERATOR_POOLS, None, name)
        except NotFoundError:
            return None

    async def _write_status(
        self, live: Object, counts: AcceleratorPoolStatus, readiness: PoolReadiness
    ) -> None:
        """Write the status, if it differs from the live one."""
        metadata = live["metadata"]
        finding = Finding(ConditionType.READY, readiness.ready, readiness.reason, readiness.message)
        previous = (live.get("status") or {}).get("conditions") or []
        conditions = make_conditions([finding], previous, metadata["generation"], self._now())
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
        """Remove discovered pools without nodes; the nodes are read live, since the cache may lack
        some."""
        bodies = list(candidates)
        if not bodies:
            return
        live = Fleet(self._catalog, self._view().shard)
        selection = Selection(NODES, labels=self._view().shard.labels)
        await self._api.list_pages(
            selection, ObjectParts.PARTIAL, lambda node: live.put_node(read_node(node))
        )
        for declared in self._view().snapshot().declared_pools:
            live.declare(declared)
        live_names = {pool.name for pool in live.pools()}
        for body in bodies:
            child = read_child(body)
            if child.name in live_names:
                continue
            try:
                await self._api.delete(
                    ACCELERATOR_POOLS, None, child.name, child.uid, child.resource_version
                )
            except ApiError as error:
                _LOG.warning("AcceleratorPool %s not removed: %s", child.name, error)


def _is_discovered(body: Object) -> bool:
    labels = body["metadata"].get("labels") or {}
    return labels.get(LABEL_DISCOVERED) == "true"
