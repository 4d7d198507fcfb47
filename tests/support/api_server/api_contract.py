"""What every KubeApi must do: one suite, run on the fake and on a real API server."""

import copy
from typing import Any

import pytest

from tests.support.api_server.contract_world import (
    World,
    condition,
    condition_types,
    config_map,
    deployment,
    inference_deployment,
    service,
    status_of,
    version,
)
from tonnage.kube.kinds import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    INFERENCE_DEPLOYMENTS,
    LEASES,
    SERVICES,
)
from tonnage.kube.protocol import (
    ConflictError,
    KindMissingError,
    NotFoundError,
    Object,
    ObjectParts,
    Selection,
)
from tonnage.kube.protocol import Kind as KindOf


class ApplyContract:
    """Server-side apply of whole objects."""

    async def test_applied_object_can_be_read_back(self, world: World) -> None:
        applied = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        read = await world.api.get(CONFIG_MAPS, world.namespace, "facts")
        assert (read["apiVersion"], read["kind"], read["data"]) == ("v1", "ConfigMap", {"a": "1"})
        assert read["metadata"]["uid"] == applied["metadata"]["uid"]

    async def test_text_of_any_script_is_kept(self, world: World) -> None:
        words = "8 × MI300X – 模型 🚢 \u2028 \x7f"
        applied = await world.api.apply(CONFIG_MAPS, config_map(world, a=words))
        assert applied["data"] == {"a": words}

    @pytest.mark.parametrize("kind", [CONFIG_MAPS, SERVICES, DEPLOYMENTS])
    async def test_second_equal_apply_changes_nothing(self, world: World, kind: KindOf) -> None:
        body = _small(world, kind)
        await world.api.apply(kind, body)
        before = await world.api.get(kind, world.namespace, body["metadata"]["name"])
        after = await world.api.apply(kind, body)
        assert _without_status(after) == _without_status(before)

    async def test_field_that_is_no_longer_applied_is_removed(self, world: World) -> None:
        await world.api.apply(CONFIG_MAPS, config_map(world, a="1", b="2"))
        after = await world.api.apply(CONFIG_MAPS, config_map(world, b="2"))
        assert after["data"] == {"b": "2"}

    async def test_environment_variable_no_longer_applied_is_removed(self, world: World) -> None:
        body = deployment(world)
        await world.api.apply(DEPLOYMENTS, body)
        shorter = copy.deepcopy(body)
        del shorter["spec"]["template"]["spec"]["containers"][0]["env"][0]
        after = await world.api.apply(DEPLOYMENTS, shorter)
        (container,) = after["spec"]["template"]["spec"]["containers"]
        assert container["env"] == [{"name": "B", "value": "2"}]

    async def test_foreign_field_survives_an_apply_that_does_not_name_it(
        self, world: World
    ) -> None:
        live = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        live["data"]["theirs"] = "kept"
        await world.user.put(CONFIG_MAPS, live)
        after = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        assert after["data"] == {"a": "1", "theirs": "kept"}

    async def test_foreign_edit_of_an_applied_field_is_reverted(self, world: World) -> None:
        live = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        live["data"]["a"] = "edited"
        await world.user.put(CONFIG_MAPS, live)
        after = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        assert after["data"] == {"a": "1"}

    async def test_only_a_changed_spec_makes_a_new_generation(self, world: World) -> None:
        first = await world.api.apply(DEPLOYMENTS, deployment(world))
        same = await world.api.apply(DEPLOYMENTS, deployment(world))
        changed = await world.api.apply(DEPLOYMENTS, deployment(world, image="other"))
        generations = [each["metadata"]["generation"] for each in (first, same, changed)]
        assert generations == [1, 1, 2]

    async def test_an_annotation_makes_a_new_generation_of_a_deployment_alone(
        self, world: World
    ) -> None:
        for kind, body, generations in (
            (DEPLOYMENTS, deployment(world), [1, 2]),
            (INFERENCE_DEPLOYMENTS, inference_deployment(world), [1, 1]),
        ):
            first = await world.api.apply(kind, body)
            noted = {**body, "metadata": {**body["metadata"], "annotations": {"a": "b"}}}
            second = await world.api.apply(kind, noted)
            assert [each["metadata"]["generation"] for each in (first, second)] == generations

    async def test_apply_for_a_recreated_object_is_a_conflict(self, world: World) -> None:
        old = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        await world.user.remove(CONFIG_MAPS, world.namespace, "facts")
        body = config_map(world, a="2")
        body["metadata"]["uid"] = old["metadata"]["uid"]
        with pytest.raises(ConflictError):
            await world.api.apply(CONFIG_MAPS, body)
        await world.api.apply(CONFIG_MAPS, config_map(world, a="3"))
        with pytest.raises(ConflictError):
            await world.api.apply(CONFIG_MAPS, body)


class CreateContract:
    """A missing object is created as by an apply; an existing one stays as it is."""

    @pytest.mark.parametrize("kind", [CONFIG_MAPS, SERVICES, DEPLOYMENTS])
    async def test_created_object_is_the_one_that_is_applied_later(
        self, world: World, kind: KindOf
    ) -> None:
        body = _small(world, kind)
        created = await world.api.create(kind, body)
        applied = await world.api.apply(kind, body)
        assert applied["metadata"]["uid"] == created["metadata"]["uid"]
        assert _without_status(applied) == _without_status(created)

    async def test_field_of_the_created_object_that_is_not_applied_later_is_removed(
        self, world: World
    ) -> None:
        await world.api.create(CONFIG_MAPS, config_map(world, a="1", b="2"))
        after = await world.api.apply(CONFIG_MAPS, config_map(world, b="2"))
        assert after["data"] == {"b": "2"}

    @pytest.mark.parametrize("kind", [CONFIG_MAPS, SERVICES, DEPLOYMENTS, INFERENCE_DEPLOYMENTS])
    @pytest.mark.parametrize("whose", ["theirs", "ours"])
    async def test_create_leaves_an_existing_object_unchanged(
        self, world: World, kind: KindOf, whose: str
    ) -> None:
        """Also where it has the very values, as one restored from a backup, or a leftover, does."""
        body = _small(world, kind)
        live = await (world.api.apply if whose == "ours" else world.user.put)(kind, body)
        owned = {**body["metadata"], "annotations": {"whose": "new"}}
        with pytest.raises(ConflictError):
            await world.api.create(kind, {**body, "metadata": owned})
        left = await world.api.get(kind, world.namespace, body["metadata"]["name"])
        assert "whose" not in left["metadata"].get("annotations", {})
        assert _without_status(left) == _without_status(live)


class StatusContract:
    """Server-side apply of /status."""

    async def test_status_leaves_the_rest_alone(self, world: World) -> None:
        live = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        body = status_of(live, condition("Ready"))
        body["spec"] = {"model": {"name": "other"}}
        after = await world.api.apply_status(INFERENCE_DEPLOYMENTS, body)
        assert after["spec"] == live["spec"]
        assert after["metadata"]["generation"] == live["metadata"]["generation"]
        assert condition_types(after) == ["Ready"]

    async def test_equal_status_changes_nothing(self, world: World) -> None:
        live = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        body = status_of(live, condition("Ready"))
        first = await world.api.apply_status(INFERENCE_DEPLOYMENTS, body)
        second = await world.api.apply_status(INFERENCE_DEPLOYMENTS, body)
        assert version(second) == version(first)

    async def test_condition_no_longer_reported_is_removed(self, world: World) -> None:
        live = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        both = status_of(live, condition("Ready"), condition("Stalled"))
        await world.api.apply_status(INFERENCE_DEPLOYMENTS, both)
        after = await world.api.apply_status(
            INFERENCE_DEPLOYMENTS, status_of(live, condition("Ready"))
        )
        assert condition_types(after) == ["Ready"]

    async def test_status_of_a_recreated_object_is_a_conflict(self, world: World) -> None:
        old = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        await world.user.remove(INFERENCE_DEPLOYMENTS, world.namespace, "llama")
        await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        stale = status_of(old, condition("Ready"), uid=old["metadata"]["uid"])
        with pytest.raises(ConflictError):
            await world.api.apply_status(INFERENCE_DEPLOYMENTS, stale)
        live = await world.api.get(INFERENCE_DEPLOYMENTS, world.namespace, "llama")
        assert condition_types(live) == []

    async def test_status_for_an_older_version_is_a_conflict(self, world: World) -> None:
        live = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        body = status_of(live, condition("Ready"), uid=live["metadata"]["uid"])
        body["metadata"]["resourceVersion"] = version(live)
        await world.api.apply_status(INFERENCE_DEPLOYMENTS, body)
        body["status"]["conditions"] = []
        with pytest.raises(ConflictError):
            await world.api.apply_status(INFERENCE_DEPLOYMENTS, body)

    @pytest.mark.parametrize("with_uid", [False, True])
    async def test_status_of_a_deleted_object_is_not_found(
        self, world: World, with_uid: bool
    ) -> None:
        old = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        await world.user.remove(INFERENCE_DEPLOYMENTS, world.namespace, "llama")
        uid = old["metadata"]["uid"] if with_uid else None
        with pytest.raises(NotFoundError):
            await world.api.apply_status(
                INFERENCE_DEPLOYMENTS, status_of(old, condition("Ready"), uid=uid)
            )

    async def test_spec_change_of_the_user_keeps_the_status(self, world: World) -> None:
        live = await world.user.put(INFERENCE_DEPLOYMENTS, inference_deployment(world))
        reported = await world.api.apply_status(
            INFERENCE_DEPLOYMENTS, status_of(live, condition("Ready"))
        )
        reported["spec"]["replicas"] = 3
        after = await world.user.put(INFERENCE_DEPLOYMENTS, reported)
        assert condition_types(after) == ["Ready"]
        assert after["metadata"]["generation"] == live["metadata"]["generation"] + 1


class ReadContract:
    """Get and list."""

    async def test_whole_number_is_read_back_without_its_fraction(self, world: World) -> None:
        body = inference_deployment(world)
        body["spec"]["model"]["source"] = {"inline": {"config": {"rope_theta": 500000.0}}}
        await world.user.put(INFERENCE_DEPLOYMENTS, body)
        stored = await world.api.get(INFERENCE_DEPLOYMENTS, world.namespace, "llama")
        theta = stored["spec"]["model"]["source"]["inline"]["config"]["rope_theta"]
        assert repr(theta) == "500000"

    async def test_missing_object_is_not_found(self, world: World) -> None:
        with pytest.raises(NotFoundError) as caught:
            await world.api.get(CONFIG_MAPS, world.namespace, "missing")
        assert not isinstance(caught.value, KindMissingError)

    @pytest.mark.parametrize("group", ["tonnage.dev", "unknown.example", "apps"])
    async def test_kind_without_a_crd_differs_from_a_missing_object(
        self, world: World, group: str
    ) -> None:
        unknown = KindOf(group, "v1", "Nothing", "nothings")
        with pytest.raises(KindMissingError):
            await world.api.get(unknown, world.namespace, "x")

    async def test_list_selects_by_namespace_and_labels(self, world: World) -> None:
        await world.api.apply(CONFIG_MAPS, config_map(world, "one", a="1"))
        other = config_map(world, "two", a="1")
        other["metadata"]["labels"] = {"team": "code"}
        await world.api.apply(CONFIG_MAPS, other)
        bodies = await world.api.list(CONFIG_MAPS, world.namespace, {"team": "chat"})
        assert [each["metadata"]["name"] for each in bodies] == ["one"]
        assert [(each["apiVersion"], each["kind"]) for each in bodies] == [("v1", "ConfigMap")]
        everywhere = await world.api.list(CONFIG_MAPS, None, {"team": "code"})
        assert "two" in [each["metadata"]["name"] for each in everywhere]

    @pytest.mark.parametrize("parts", [ObjectParts.METADATA, ObjectParts.FULL])
    async def test_each_passes_on_the_identity_and_version_of_an_object(
        self, world: World, parts: ObjectParts
    ) -> None:
        live = await world.api.create(SERVICES, service(world))
        (body,) = await _each(world, Selection(SERVICES, world.namespace), parts)
        assert _version_of(body) == _version_of(live)
        assert body["metadata"]["name"] == live["metadata"]["name"]

    async def test_each_passes_on_full_objects_as_get_reads_them(self, world: World) -> None:
        live = await world.api.apply(SERVICES, service(world))
        live["metadata"].pop("managedFields", None)
        (body,) = await _each(world, Selection(SERVICES, world.namespace))
        assert body == live

    async def test_each_selects_by_namespace_labels_and_fields(self, world: World) -> None:
        for name, team in (("one", "chat"), ("two", "chat"), ("three", "code")):
            body = config_map(world, name, a="1")
            body["metadata"]["labels"] = {"team": team}
            await world.api.apply(CONFIG_MAPS, body)
        selections = {
            "a label": Selection(CONFIG_MAPS, world.namespace, {"team": "chat"}),
            "no such label": Selection(CONFIG_MAPS, world.namespace, {"team": None}),
            "a field": Selection(CONFIG_MAPS, world.namespace, fields="metadata.name=three"),
            "no such field": Selection(
                CONFIG_MAPS, world.namespace, {"team": "chat"}, "metadata.name!=one"
            ),
            "another namespace": Selection(CONFIG_MAPS, f"{world.namespace}-other"),
        }
        names = {
            name: {each["metadata"]["name"] for each in await _each(world, selection)}
            for name, selection in selections.items()
        }
        names["no such label"] -= {"kube-root-ca.crt"}  # of each namespace of a cluster
        assert names == {
            "a label": {"one", "two"},
            "no such label": set(),
            "a field": {"three"},
            "no such field": {"two"},
            "another namespace": set(),
        }

    async def test_the_version_of_a_list_lies_between_earlier_and_later_changes(
        self, world: World
    ) -> None:
        selection = Selection(SERVICES, world.namespace)
        empty = await world.api.list_pages(selection, ObjectParts.METADATA, lambda _: None)
        live = await world.api.create(SERVICES, service(world))
        listed = await world.api.list_pages(selection, ObjectParts.METADATA, lambda _: None)
        later = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        versions = [empty, version(live), listed, version(later)]
        assert [*map(int, versions)] == sorted(map(int, versions))
        assert int(empty) < int(version(live))
        assert int(listed) < int(version(later))

    async def test_list_after_a_deletion_is_newer_than_what_was_deleted(self, world: World) -> None:
        """So a store can tell an object that is gone from one that the list is too old to show."""
        live = await world.api.create(SERVICES, service(world))
        await world.user.remove(SERVICES, world.namespace, live["metadata"]["name"])
        selection = Selection(SERVICES, world.namespace)
        bodies: list[Object] = []
        listed = await world.api.list_pages(selection, ObjectParts.METADATA, bodies.append)
        assert bodies == []
        assert int(listed) > int(version(live))

    async def test_only_a_served_kind_is_listed(self, world: World) -> None:
        first = world.api.list_first
        await first(Selection(SERVICES, world.namespace), ObjectParts.METADATA, 1)
        unknown = KindOf("unknown.example", "v1", "Nothing", "nothings")
        with pytest.raises(KindMissingError):
            await first(Selection(unknown), ObjectParts.METADATA, 1)

    async def test_list_of_an_empty_namespace_is_empty(self, world: World) -> None:
        assert await world.api.list(SERVICES, world.namespace) == []


class DeleteContract:
    """Deletes happen to exactly the object that was read."""

    async def test_deleted_object_is_gone(self, world: World) -> None:
        live = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        assert await _delete(world, CONFIG_MAPS, live) is None
        with pytest.raises(NotFoundError):
            await world.api.get(CONFIG_MAPS, world.namespace, "facts")

    @pytest.mark.parametrize("kind", [SERVICES, INFERENCE_DEPLOYMENTS])
    async def test_delete_returns_nothing_for_a_removed_object(
        self, world: World, kind: KindOf
    ) -> None:
        """Whatever the API server answers: of some kinds it is the object as it was."""
        live = await world.user.put(kind, _small(world, kind))
        live = await world.api.get(kind, world.namespace, live["metadata"]["name"])
        assert await _delete(world, kind, live) is None

    async def test_delete_returns_the_object_that_a_finalizer_keeps(self, world: World) -> None:
        body = config_map(world, a="1")
        body["metadata"]["finalizers"] = ["example.com/kept"]
        live = await world.user.put(CONFIG_MAPS, body)
        kept = await _delete(world, CONFIG_MAPS, live)
        assert kept is not None
        assert kept["metadata"]["uid"] == live["metadata"]["uid"]
        assert int(version(kept)) > int(version(live))
        read = await world.api.get(CONFIG_MAPS, world.namespace, "facts")
        assert read["metadata"]["deletionTimestamp"] == kept["metadata"]["deletionTimestamp"]
        del read["metadata"]["finalizers"]
        await world.user.put(CONFIG_MAPS, read)
        with pytest.raises(NotFoundError):
            await world.api.get(CONFIG_MAPS, world.namespace, "facts")

    async def test_delete_of_a_missing_object_succeeds(self, world: World) -> None:
        args = (CONFIG_MAPS, world.namespace, "missing", "no-uid", "1")
        assert await world.api.delete(*args) is None

    async def test_changed_object_is_not_deleted(self, world: World) -> None:
        read = (await world.api.apply(CONFIG_MAPS, config_map(world, a="1")))["metadata"]
        await world.api.apply(CONFIG_MAPS, config_map(world, a="2"))
        with pytest.raises(ConflictError):
            await world.api.delete(
                CONFIG_MAPS, world.namespace, "facts", read["uid"], read["resourceVersion"]
            )
        assert await world.api.get(CONFIG_MAPS, world.namespace, "facts")

    async def test_recreated_object_is_not_deleted(self, world: World) -> None:
        read = (await world.api.apply(CONFIG_MAPS, config_map(world, a="1")))["metadata"]
        await world.user.remove(CONFIG_MAPS, world.namespace, "facts")
        again = (await world.api.apply(CONFIG_MAPS, config_map(world, a="1")))["metadata"]
        with pytest.raises(ConflictError):
            await world.api.delete(
                CONFIG_MAPS, world.namespace, "facts", read["uid"], again["resourceVersion"]
            )


class ScaleContract:
    """Another number of replicas, and nothing else."""

    async def test_scale_changes_only_the_replicas(self, world: World) -> None:
        live = await world.api.apply(DEPLOYMENTS, deployment(world))
        answer = await world.api.scale(DEPLOYMENTS, live, 3)
        scaled = await world.api.get(DEPLOYMENTS, world.namespace, live["metadata"]["name"])
        assert answer["spec"] == scaled["spec"] == {**live["spec"], "replicas": 3}
        assert answer["metadata"]["uid"] == live["metadata"]["uid"]
        assert int(version(answer)) > int(version(live))
        after = await world.api.apply(DEPLOYMENTS, deployment(world))
        assert after["spec"] == live["spec"]

    async def test_recreated_object_is_not_scaled(self, world: World) -> None:
        live = await world.api.apply(DEPLOYMENTS, deployment(world))
        await world.user.remove(DEPLOYMENTS, world.namespace, live["metadata"]["name"])
        with pytest.raises(NotFoundError):
            await world.api.scale(DEPLOYMENTS, live, 3)
        await world.api.apply(DEPLOYMENTS, deployment(world))
        with pytest.raises(ConflictError):
            await world.api.scale(DEPLOYMENTS, live, 3)


class EventContract:
    """Events are written under a name, and again as a series."""

    async def test_event_becomes_a_series(self, world: World) -> None:
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "llama.1", "namespace": world.namespace},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal",
            "reason": "PoolChosen",
            "action": "Place",
            "note": "placed on amd-mi300x",
            "reportingController": "tonnage.dev/operator",
            "reportingInstance": "operator-0",
            "regarding": {
                "apiVersion": INFERENCE_DEPLOYMENTS.api_version,
                "kind": INFERENCE_DEPLOYMENTS.kind,
                "name": "llama",
                "namespace": world.namespace,
            },
        }
        await world.api.create_event(event)
        again = event | {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z"}}
        await world.api.create_event(again)
        live = await world.api.get(EVENTS, world.namespace, "llama.1")
        assert live["series"]["count"] == 2


class LeaseContract:
    """Compare-and-swap on a Lease."""

    def lease(self, world: World, holder: str) -> Object:
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": "tonnage", "namespace": world.namespace},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }

    async def test_lease_is_created_once(self, world: World) -> None:
        with pytest.raises(NotFoundError):
            await world.leases.get_lease(world.namespace, "tonnage")
        await world.leases.put_lease(self.lease(world, "a"))
        with pytest.raises(ConflictError):
            await world.leases.put_lease(self.lease(world, "b"))
        live = await world.leases.get_lease(world.namespace, "tonnage")
        assert live["spec"]["holderIdentity"] == "a"

    async def test_lease_is_replaced_only_as_it_was_read(self, world: World) -> None:
        read = await world.leases.put_lease(self.lease(world, "a"))
        newer = copy.deepcopy(read)
        newer["spec"]["holderIdentity"] = "b"
        await world.leases.put_lease(newer)
        stale = copy.deepcopy(read)
        stale["spec"]["holderIdentity"] = "c"
        with pytest.raises(ConflictError):
            await world.leases.put_lease(stale)
        live = await world.leases.get_lease(world.namespace, "tonnage")
        assert live["spec"]["holderIdentity"] == "b"


class ApiContract(
    ApplyContract,
    CreateContract,
    StatusContract,
    ReadContract,
    DeleteContract,
    ScaleContract,
    EventContract,
    LeaseContract,
):
    """All of it; a test module subclasses this and gives the fixture `world`."""


def _small(world: World, kind: KindOf) -> Object:
    return {
        CONFIG_MAPS: config_map(world, a="1"),
        SERVICES: service(world),
        DEPLOYMENTS: deployment(world),
        INFERENCE_DEPLOYMENTS: inference_deployment(world),
    }[kind]


async def _each(
    world: World, selection: Selection, parts: ObjectParts = ObjectParts.FULL
) -> list[Object]:
    bodies: list[Object] = []
    await world.api.list_pages(selection, parts, bodies.append)
    return bodies


async def _delete(world: World, kind: KindOf, live: Object) -> Object | None:
    metadata = live["metadata"]
    of_version = metadata["uid"], metadata["resourceVersion"]
    return await world.api.delete(kind, world.namespace, metadata["name"], *of_version)


def _version_of(live: Object) -> tuple[str, str]:
    return live["metadata"]["uid"], live["metadata"]["resourceVersion"]


def _without_status(live: Object) -> Object:
    """Controllers of the cluster write the status of Deployments at any time."""
    live = {key: value for key, value in live.items() if key != "status"}
    if live["kind"] == "Deployment":
        noise = ("managedFields", "resourceVersion", "annotations")
        live["metadata"] = {
            key: value for key, value in live["metadata"].items() if key not in noise
        }
    return live
