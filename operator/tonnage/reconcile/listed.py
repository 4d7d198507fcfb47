"""What lists of whole kinds show, packed object by object, and the looks that it comes to.

A process that begins to lead looks at every object. Where each look reads for itself, five thousand
objects are twenty thousand requests; lists in pages show the same in a hundred.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tonnage.api.names import LABEL_MANAGED_BY, LABEL_OWNER, MANAGED_BY
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Kind, KubeApi, Listing, Object, Parts
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import BELONGINGS, PackedLook, pack, unpack

OURS: Final = {LABEL_MANAGED_BY: MANAGED_BY}
"""Labels of what is made for InferenceDeployments."""


@dataclass(frozen=True, slots=True)
class _Packed:
    uid: str
    version: str
    body: bytes


@dataclass(slots=True)
class Listed:
    """InferenceDeployments and what belongs to them: all, or those that are `wanted`."""

    wanted: Callable[[Key], bool] = lambda _: True
    _itself: dict[Key, _Packed] = field(default_factory=dict)
    _belongings: defaultdict[Key, defaultdict[Kind, dict[str, _Packed]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )

    def note(self, kind: Kind, obj: Object) -> None:
        """A list shows this one; of the object itself nothing is kept. It may come again."""
        metadata = obj["metadata"]
        is_itself = kind == INFERENCE_DEPLOYMENTS
        owner = metadata["name"] if is_itself else (metadata.get("labels") or {}).get(LABEL_OWNER)
        key = Key(metadata["namespace"], owner) if owner else None
        if key is None or not self.wanted(key):
            return
        named = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
        packed = _Packed(metadata["uid"], metadata["resourceVersion"], pack(named))
        if is_itself:
            self._itself[key] = packed
        else:
            self._belongings[key][kind][packed.uid] = packed

    def keys(self) -> set[Key]:
        """Of what anything is there: an object, or something that was made for one."""
        return {*self._itself, *self._belongings}

    def objects(self) -> Iterator[Object]:
        """The InferenceDeployments, one at a time."""
        return (unpack(packed.body) for packed in self._itself.values())

    def deployments(self) -> list[Object]:
        """Our Deployments without their templates, which are most of them."""
        return [
            _without_template(unpack(packed.body))
            for found in self._belongings.values()
            for packed in found.get(DEPLOYMENTS, {}).values()
        ]

    def looks(self) -> Iterator[tuple[Key, PackedLook]]:
        """What a look at each object would have seen."""
        for key, itself in self._itself.items():
            found: Mapping[Kind, Mapping[str, _Packed]] = self._belongings.get(key, {})
            belongings = {kind: found.get(kind, {}) for kind in BELONGINGS}
            versions = {
                kind: {uid: one.version for uid, one in ones.items()}
                for kind, ones in belongings.items()
            }
            yield (
                key,
                PackedLook(
                    itself.body,
                    {
                        kind: [one.body for one in ones.values()]
                        for kind, ones in belongings.items()
                    },
                    {INFERENCE_DEPLOYMENTS: {itself.uid: itself.version}, **versions},
                ),
            )


def _without_template(deployment: Object) -> Object:
    rest = {name: value for name, value in deployment["spec"].items() if name != "template"}
    return {**deployment, "spec": rest}


async def list_all(api: KubeApi) -> Listed:
    """Read everything once. Raises ApiError."""
    listed = Listed()
    await api.each(
        Listing(INFERENCE_DEPLOYMENTS, Parts.WHOLE), partial(listed.note, INFERENCE_DEPLOYMENTS)
    )
    for kind in BELONGINGS:
        await api.each(Listing(kind, Parts.WHOLE, labels=OURS), partial(listed.note, kind))
    return listed
