"""The first child of an object that has just been made: before any look at it.

Users wait for it, since nodes, images and weights take longest; all else (Services, the status,
events) follows from a look that is made a little later, when nobody else waits for a first child.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import ConflictError, ForbiddenError, InvalidError, KubeApi, Object
from tonnage.reconcile.actions import Action, Apply

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
