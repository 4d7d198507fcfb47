"""The first child of an object that has just been made: before any look at it.

Users wait for it, since nodes, images and weights take longest; all else (Services, the status,
events) follows from a look that is made a little later, when nobody else waits for a first child.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tonnage.api.names import LABEL_OWNER
from tonnage.kube.forwarding import ForwardingKubeApi
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    InvalidError,
    Kind,
    KubeApi,
    Labels,
    Object,
)
from tonnage.reconcile.actions import Action, Apply
from tonnage.reconcile.key import Key
from tonnage.reconcile.newborns import Grown

REST_SECONDS: Final = 0.3
"""After its first child an object is looked at so soon, unless a user's wish brings it sooner. By
then the Deployment controller has told what it tells of a new one, several times, and one look sees
all of it."""


def first_children(actions: tuple[Action, ...]) -> tuple[Apply, ...]:
    """The Deployments that are made first, where there is nothing but to make: of an object that
    has nothing, nothing can be changed or taken away."""
    new = tuple(action for action in actions if isinstance(action, Apply) and not action.exists)
    if len(new) < len(actions):
        return ()
    return tuple(action for action in new if action.kind == DEPLOYMENTS)


async def make_children(api: KubeApi, children: Iterable[Apply]) -> list[Object]:
    """Make them in their order, and give what was made: all, or those before the first that may not
    be. A look tells why, and whose its name is.

    Raises any other ApiError.
    """
    made: list[Object] = []
    with suppress(ConflictError, ForbiddenError, InvalidError):
        for child in children:
            made.append(await api.create(child.kind, child.body))  # noqa: PERF401 - kept on failure
    return made


class GrownApi(ForwardingKubeApi):
    """For the look at an object whose first child was just made: what nobody told anything of is
    not read, and what is there is not changed.

    The Deployments are read: their controller has told of them by then. Services and pods of which
    no event told are not there, or an event is about to tell; the object is what it was when its
    child was planned, or its status will not be taken.
    """

    def __init__(self, behind: KubeApi, key: Key, grown: Grown) -> None:
        super().__init__(behind)
        self._key = key
        self._itself = grown.itself
        self._absent = frozenset({SERVICES, PODS} - grown.told)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """The object as it was; any other is read live. Raises NotFoundError."""
        if (kind, name) == (INFERENCE_DEPLOYMENTS, self._key.name):
            return self._itself
        return await super().get(kind, namespace, name)

    async def list(
        self, kind: Kind, namespace: str | None = None, labels: Labels | None = None
    ) -> list[Object]:
        """None of what nobody told of; all else is read live."""
        if kind in self._absent and labels == {LABEL_OWNER: self._key.name}:
            return []
        return await super().list(kind, namespace, labels)

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Raises ConflictError: what is there is changed after it was read."""
        raise ConflictError(f"{_NOT_READ}, apply {kind.kind} {body['metadata']['name']} waits")

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> None:
        """Raises ConflictError."""
        raise ConflictError(f"{_NOT_READ}, delete {kind.kind} {namespace}/{name} waits")

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> None:
        """Raises ConflictError."""
        raise ConflictError(f"{_NOT_READ}, scale {kind.kind} {seen['metadata']['name']} waits")


_NOT_READ: Final = "not all of the object was read"
