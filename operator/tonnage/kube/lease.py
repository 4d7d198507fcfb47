"""Leader election on a coordination.k8s.io Lease: at most one process writes, the others watch.

The algorithm is that of client-go's leaderelection package. A candidate swaps the holder by
resourceVersion. It judges expiry by its own monotonic clock, from the moment at which it saw the
record change, so clocks of machines need not agree. A holder counts its validity from before the
request that renewed it, and stops `lease_seconds - renew_deadline_seconds` before another candidate
can take over. A write in progress times out within that time, so that none leaves this process when
another one may lead.

The lease saves work; it is no lock around the cluster. A write that has left can be delayed on its
way and arrive later still, so two leaders for a moment must be harmless.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tonnage import delays
from tonnage.kube.kinds import LEASES
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    LeaseApi,
    NotFoundError,
    NotLeadingError,
    Object,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds. Retries of all replicas are jittered by up to a fifth."""

    lease_seconds: float = delays.LEASE
    renew_deadline_seconds: float = delays.RENEW_DEADLINE
    retry_seconds: float = delays.RENEW


@dataclass(frozen=True, slots=True)
class Clock:
    """Time as the elector sees it; tests pass a fake one."""

    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class LeaseNamespaceMissingError(Exception):
    """The namespace of the Lease does not exist; the message says what to do."""


class LeaderElector:
    """One candidate for one Lease."""

    def __init__(
        self,
        api: LeaseApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        timing: LeaseTiming = LeaseTiming(),
        clock: Clock = Clock(),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._timing = timing
        self._clock = clock
        self._jitter = jitter
        self._record: Object | None = None
        self._record_seen_at = 0.0
        self._is_own_record = False  # the record is the answer to this process's last write
        self._valid_until: float | None = None
        self.lost = asyncio.Event()

    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self._valid_until is not None and self._clock.monotonic() < self._valid_until

    def check(self) -> float:
        """The gate before each write. Returns the seconds until another process may lead, within
        which the write has to end. Raises NotLeadingError."""
        now = self._clock.monotonic()
        if self._valid_until is None or now >= self._valid_until:
            raise NotLeadingError(
                f"{self._identity} does not hold lease {self._namespace}/{self._name}"
            )
        timing = self._timing
        return self._valid_until - now + timing.lease_seconds - timing.renew_deadline_seconds

    async def acquire(self) -> None:
        """Wait until this process leads. Raises LeaseNamespaceMissingError, as no wait helps."""
        while not await self.try_acquire_or_renew():
            await self._clock.sleep(self._seconds_to_next_try())
        _log.info("leading", extra={"identity": self._identity})

    async def hold(self) -> None:
        """Renew until the lease is lost; sets `lost` and returns.

        A process that slept past its validity has lost the lease, even when it is free again:
        another one may have led meanwhile.
        """
        leading = self.is_leading()
        while leading:
            await self._clock.sleep(self._timing.retry_seconds)
            leading = self.is_leading() and await self.try_acquire_or_renew()
        self.lost.set()
        _log.error("lease lost", extra={"identity": self._identity})

    async def release(self) -> None:
        """Let another replica lead at once. From here on the gate is closed. Never raises."""
        was_leading = self.is_leading()
        self._valid_until = None
        if not was_leading or self._record is None:
            return
        lease = deepcopy(self._record)
        lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            await self._api.put_lease(lease)
        except ApiError as error:
            _log.warning("lease not released: %s", error)

    async def try_acquire_or_renew(self) -> bool:
        """Try once. Returns whether this process leads. Raises LeaseNamespaceMissingError."""
        started = self._clock.monotonic()
        try:
            if not await self._renew_own_record():
                self._observe(await self._read())
                if self._is_held_by_another():
                    self._valid_until = None
                    return False
                self._observe(await self._write_claim())
        except ApiError as error:
            # A valid lease stays valid until its deadline. Candidates conflict in normal operation.
            level = logging.INFO if isinstance(error, ConflictError) else logging.WARNING
            _log.log(level, "lease not renewed: %s", error)
            return self.is_leading()
        self._is_own_record = True
        self._valid_until = started + self._timing.renew_deadline_seconds
        return self.is_leading()

    async def _renew_own_record(self) -> bool:
        """Renew this process's own last record without a read. Returns False where the record has
        changed, for which the API server reports a conflict. Raises ApiError."""
        is_own_record, self._is_own_record = self._is_own_record, False
        if not is_own_record:
            return False
        try:
            self._observe(await self._api.put_lease(self._claim()))
        except (ConflictError, NotFoundError):
            return False
        return True

    async def _write_claim(self) -> Object:
        """Create or replace the record. Raises ApiError and LeaseNamespaceMissingError."""
        claim = self._claim()
        try:
            return await self._api.put_lease(claim)
        except NotFoundError:
            if "resourceVersion" in claim["metadata"]:
                raise  # the Lease was deleted since it was read
            raise LeaseNamespaceMissingError(
                f"namespace {self._namespace} of the Lease for leader election does not exist: "
                f"create it (kubectl create namespace {self._namespace}), or name another one by "
                "--namespace"
            ) from None

    async def _read(self) -> Object | None:
        try:
            return await self._api.get_lease(self._namespace, self._name)
        except NotFoundError:
            return None

    def _observe(self, record: Object | None) -> None:
        if record is None or self._record is None or _version(record) != _version(self._record):
            self._record_seen_at = self._clock.monotonic()
        self._record = record

    def _seconds_to_next_try(self) -> float:
        """The retry interval, or the time until another's lease expires where that is shorter."""
        retry = self._timing.retry_seconds * (1 + 0.2 * self._jitter())
        if not self._is_held_by_another():
            return retry
        return min(retry, self._expires_at() - self._clock.monotonic())

    def _is_held_by_another(self) -> bool:
        holder = self._spec().get("holderIdentity")
        if not holder or holder == self._identity:
            return False
        return self._clock.monotonic() < self._expires_at()

    def _expires_at(self) -> float:
        """When another candidate may take the lease, on the local clock."""
        return self._record_seen_at + self._timing.lease_seconds

    def _claim(self) -> Object:
        """The record with this process as its holder, conditional on the record as read."""
        now = self._clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = self._spec()
        is_renewal = spec.get("holderIdentity") == self._identity
        transitions = spec.get("leaseTransitions")
        transitions = transitions if isinstance(transitions, int) else 0
        metadata = (self._record or {}).get(
            "metadata", {"name": self._name, "namespace": self._namespace}
        )
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {key: value for key, value in metadata.items() if key != "managedFields"},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._timing.lease_seconds),
                "acquireTime": spec.get("acquireTime", now) if is_renewal else now,
                "renewTime": now,
                "leaseTransitions": transitions if is_renewal else transitions + 1,
            },
        }

    def _spec(self) -> dict[str, Any]:
        spec = (self._record or {}).get("spec")
        return spec if isinstance(spec, dict) else {}


def _version(record: Object) -> object:
    return record["metadata"].get("resourceVersion")
