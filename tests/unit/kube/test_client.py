"""The client's requests: paths, errors, paging, watches, retries, the gate."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from math import inf

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.foreign.scripted_server import Answer, ReceivedRequest, ScriptedServer, serving
from tonnage import delays
from tonnage.kube import pages, transport
from tonnage.kube.client import PARTIAL_METADATA_LIST, AioKubeApi, AioLeaseApi
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
)
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    InvalidError,
    KindMissingError,
    NotFoundError,
    NotLeadingError,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    WatchEvent,
    WriteGate,
)
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport
from tonnage.kube.write_log import collect_writes, enter_write

CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "facts", "namespace": "chat"},
}
STATUS = {"kind": "Status", "status": "Failure", "message": "because"}


def open_gate() -> float:
    """Always leading."""
    return inf


def ignore(_: Request, __: str, ___: float) -> None:
    """No metrics."""


@asynccontextmanager
async def client_of(
    *answers: Answer,
    gate: WriteGate = open_gate,
    observe: Callable[[Request, str, float], None] = ignore,
    timeout_seconds: float = 60.0,
    max_list_bytes: int | None = None,
) -> AsyncIterator[tuple[AioKubeApi, ScriptedServer]]:
    async with serving(*answers) as server, ApiClient(Configuration(host=server.url)) as client:
        api = AioKubeApi(
            Transport(client, observe),
            before_write=gate,
            bucket=TokenBucket(1000, 1000),
            timeout_seconds=timeout_seconds,
            max_list_bytes=max_list_bytes,
        )
        yield api, server


PATHS = {
    "namespaced object of the core group": (
        lambda api: api.get(CONFIG_MAPS, "chat", "facts"),
        ("GET", "/api/v1/namespaces/chat/configmaps/facts"),
    ),
    "cluster-scoped object of the core group": (
        lambda api: api.get(NODES, None, "gpu-1"),
        ("GET", "/api/v1/nodes/gpu-1"),
    ),
    "cluster-scoped object of a group": (
        lambda api: api.get(ACCELERATOR_POOLS, None, "amd"),
        ("GET", "/apis/tonnage.dev/v1alpha1/acceleratorpools/amd"),
    ),
    "all objects of all namespaces": (
        lambda api: api.list(PODS),
        ("GET", "/api/v1/pods"),
    ),
    "all objects of a namespace": (
        lambda api: api.list(DEPLOYMENTS, "chat"),
        ("GET", "/apis/apps/v1/namespaces/chat/deployments"),
    ),
    "a name that is no path": (
        lambda api: api.get(CONFIG_MAPS, "chat", "../../secrets"),
        ("GET", "/api/v1/namespaces/chat/configmaps/..%2F..%2Fsecrets"),
    ),
}


@pytest.mark.parametrize("name", PATHS)
async def test_request_goes_to_the_path_of(name: str) -> None:
    call, want = PATHS[name]
    async with client_of(Answer(body={"items": []})) as (api, server):
        await call(api)
    assert [(request.method, request.path) for request in server.asked] == [want]


async def test_requests_accept_no_compression() -> None:
    async with client_of(Answer(body={"metadata": {}, "items": []})) as (api, server):
        await api.list(CONFIG_MAPS, "chat")
        await api.list_pages(Selection(NODES), ObjectParts.PARTIAL, lambda _: None)
    assert [request.encodings for request in server.asked] == ["identity", "identity"]


async def test_apply_is_a_forced_server_side_apply() -> None:
    async with client_of(Answer(body=CONFIG_MAP)) as (api, server):
        await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert server.asked == [
        ReceivedRequest(
            "PATCH",
            "/api/v1/namespaces/chat/configmaps/facts",
            {"fieldManager": "tonnage", "force": "true"},
            "application/apply-patch+yaml",
            "identity",
            "application/json",
            CONFIG_MAP,
        )
    ]


async def test_status_is_applied_to_the_subresource_by_its_own_manager() -> None:
    body = {"metadata": {"name": "llama", "namespace": "chat"}, "status": {"replicas": 1}}
    async with client_of(Answer(body=body)) as (api, server):
        await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    (request,) = server.asked
    assert request.path.endswith("/namespaces/chat/inferencedeployments/llama/status")
    assert request.query == {"fieldManager": "tonnage-status", "force": "true"}


async def test_status_for_a_uid_is_pinned_to_the_version_that_has_it() -> None:
    live = {"metadata": {"name": "llama", "uid": "u1", "resourceVersion": "7"}}
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u1"}, "status": {}}
    async with client_of(Answer(body=live)) as (api, server):
        await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    assert [request.method for request in server.asked] == ["GET", "PATCH"]
    assert server.asked[1].body["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in body["metadata"]


async def test_status_for_another_uid_is_never_sent() -> None:
    live = {"metadata": {"name": "llama", "uid": "u2", "resourceVersion": "7"}}
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u1"}, "status": {}}
    async with client_of(Answer(body=live)) as (api, server):
        with pytest.raises(ConflictError, match="u1 is gone"):
            await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    assert [request.method for request in server.asked] == ["GET"]


async def test_delete_carries_its_preconditions() -> None:
    async with client_of(Answer()) as (api, server):
        await api.delete(DEPLOYMENTS, "chat", "llama", "u1", "7")
    (request,) = server.asked
    assert (request.method, request.path) == (
        "DELETE",
        "/apis/apps/v1/namespaces/chat/deployments/llama",
    )
    assert request.body["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
    assert request.body["propagationPolicy"] == "Background"


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (400, InvalidError),
        (401, ForbiddenError),
        (403, ForbiddenError),
        (404, KindMissingError),
        (405, InvalidError),
        (409, ConflictError),
        (413, InvalidError),
        (415, InvalidError),
        (422, InvalidError),
        (429, TransientError),
        (500, TransientError),
        (503, TransientError),
        (504, TransientError),
    ],
)
async def test_status_code_becomes(status: int, want: type[ApiError]) -> None:
    async with client_of(Answer(status, STATUS)) as (api, _):
        with pytest.raises(want, match=f"apply ConfigMap chat/facts: {status}: because") as caught:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert type(caught.value) is want


@pytest.mark.parametrize(
    ("details", "want"),
    [
        ({"name": "facts", "kind": "configmaps"}, NotFoundError),
        ({}, KindMissingError),
        ([], KindMissingError),
        ({"name": 3}, NotFoundError),
    ],
)
async def test_a_404_that_names_no_object_is_of_a_missing_kind(
    details: object, want: type[ApiError]
) -> None:
    async with client_of(Answer(404, STATUS | {"details": details})) as (api, _):
        with pytest.raises(NotFoundError) as caught:
            await api.get(CONFIG_MAPS, "chat", "facts")
    assert type(caught.value) is want


async def test_apply_for_another_uid_is_a_conflict() -> None:
    cause = {"field": "metadata.uid", "reason": "FieldValueInvalid"}
    body = STATUS | {"details": {"causes": [cause]}}
    async with client_of(Answer(422, body)) as (api, _):
        with pytest.raises(ConflictError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


@pytest.mark.parametrize("details", [None, [], {"causes": 3}, {"causes": ["x"]}])
async def test_refusal_with_odd_details_is_a_refusal(details: object) -> None:
    async with client_of(Answer(422, STATUS | {"details": details})) as (api, _):
        with pytest.raises(InvalidError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_delete_of_a_missing_object_succeeds() -> None:
    async with client_of(Answer(404, STATUS)) as (api, server):
        assert await api.delete(DEPLOYMENTS, "chat", "llama", "u1", "7") is None
    assert len(server.asked) == 1


def deployment(**metadata: object) -> Object:
    return {"kind": "Deployment", "metadata": {"name": "llama", "uid": "u1", **metadata}}


ANSWERS_TO_A_DELETE: dict[str, tuple[Object, bool]] = {
    "a Status": ({"kind": "Status", "status": "Success"}, False),
    "the object as it was": (deployment(), False),
    "an object that a finalizer keeps": (deployment(finalizers=["a/b"]), True),
    "an object that may end in order": (deployment(deletionGracePeriodSeconds=30), True),
    "an object that is killed": (deployment(deletionGracePeriodSeconds=0), False),
}


@pytest.mark.parametrize(
    ("answer", "is_kept"), ANSWERS_TO_A_DELETE.values(), ids=ANSWERS_TO_A_DELETE
)
async def test_delete_returns_an_object_that_still_exists(answer: Object, is_kept: bool) -> None:
    async with client_of(Answer(body=answer)) as (api, _):
        kept = await api.delete(DEPLOYMENTS, "chat", "llama", "u1", "7")
    assert kept == (answer if is_kept else None)


async def test_scale_sets_the_replicas_of_exactly_this_object_and_returns_it() -> None:
    seen = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u1"}}
    async with client_of(Answer(body={"spec": {"replicas": 3}})) as (api, server):
        assert await api.scale(DEPLOYMENTS, seen, 3) == {"spec": {"replicas": 3}}
    (request,) = server.asked
    assert (request.method, request.content_type) == ("PATCH", "application/merge-patch+json")
    assert request.path == "/apis/apps/v1/namespaces/chat/deployments/llama"
    assert request.body == {"metadata": {"uid": "u1"}, "spec": {"replicas": 3}}


async def test_the_error_of_a_quota_has_the_servers_message() -> None:
    body = STATUS | {"message": "exceeded quota: gpus, requested: 8, used: 8, limited: 8"}
    async with client_of(Answer(403, body)) as (api, _):
        with pytest.raises(ForbiddenError, match="exceeded quota: gpus, requested: 8"):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


@pytest.mark.parametrize(
    ("header", "want"),
    [("7", 7.0), ("0", 0.0), ("99999", 300.0), ("soon", None), ("-1", None), ("", None)],
)
async def test_an_error_carries_retry_after(header: str, want: float | None) -> None:
    async with client_of(Answer(429, STATUS, {"Retry-After": header})) as (api, _):
        with pytest.raises(TransientError) as caught:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert caught.value.retry_after == want


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>bad gateway</html>", b"[1]", b"null", b"[" * 100_000, b"\xff\xfe"],
    ids=["empty", "html", "list", "null", "deep", "not utf-8"],
)
async def test_an_answer_that_is_no_object_is_a_transient_error(body: bytes) -> None:
    async with client_of(Answer(200, body)) as (api, _):
        with pytest.raises(TransientError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_the_error_for_an_answer_without_a_status_object_has_a_limited_length() -> None:
    async with client_of(Answer(502, b"x" * 100_000)) as (api, _):
        with pytest.raises(TransientError) as caught:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert len(str(caught.value)) < 3000


async def test_a_silent_server_is_a_transient_error() -> None:
    async with client_of(Answer(silent=True), timeout_seconds=0.05) as (api, _):
        with pytest.raises(TransientError, match=r"no answer within 0\.05 s"):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_unreachable_server_is_transient() -> None:
    async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
        leases = AioLeaseApi(Transport(client, ignore))
        with pytest.raises(TransientError, match="get Lease ns/tonnage"):
            await leases.get_lease("ns", "tonnage")


async def test_the_callers_own_deadline_raises_timeout_error() -> None:
    async with client_of(Answer(silent=True)) as (api, _):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_read_is_tried_twice() -> None:
    async with client_of(Answer(500, STATUS), Answer(body=CONFIG_MAP)) as (api, server):
        assert await api.get(CONFIG_MAPS, "chat", "facts") == CONFIG_MAP
    assert len(server.asked) == 2


async def test_read_is_not_tried_a_third_time() -> None:
    async with client_of(Answer(500, STATUS)) as (api, server):
        with pytest.raises(TransientError):
            await api.get(CONFIG_MAPS, "chat", "facts")
    assert len(server.asked) == 2


async def test_a_read_with_a_long_retry_after_is_not_retried() -> None:
    async with client_of(Answer(429, STATUS, {"Retry-After": "6"})) as (api, server):
        with pytest.raises(TransientError) as caught:
            await api.get(CONFIG_MAPS, "chat", "facts")
    assert (len(server.asked), caught.value.retry_after) == (1, 6.0)


async def test_write_is_tried_once() -> None:
    async with client_of(Answer(500, STATUS), Answer(body=CONFIG_MAP)) as (api, server):
        with pytest.raises(TransientError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert len(server.asked) == 1


def page(*names: str, token: str = "") -> Answer:
    items = [{"metadata": {"name": name}} for name in names]
    return Answer(body={"items": items, "metadata": {"continue": token}})


async def test_list_is_read_page_by_page() -> None:
    answers = page("a", "b", token="next=="), page("c", token="last"), page("d")
    async with client_of(*answers) as (api, server):
        config_maps = await api.list(CONFIG_MAPS, "chat", {"team": "a/b"})
    assert [each["metadata"]["name"] for each in config_maps] == ["a", "b", "c", "d"]
    assert [request.query for request in server.asked] == [
        {"limit": "200", "labelSelector": "team=a/b"},
        {"limit": "200", "labelSelector": "team=a/b", "continue": "next=="},
        {"limit": "200", "labelSelector": "team=a/b", "continue": "last"},
    ]


async def test_a_list_that_is_kept_has_a_limit() -> None:
    """A user may give any number of pods the label of a Job."""
    answers = [page("a" * 300, token="t"), page("b" * 300)]
    async with client_of(*answers, max_list_bytes=600) as (api, _):
        with pytest.raises(TransientError, match="list Pod chat: the list has more than 600 bytes"):
            await api.list(PODS, "chat")
    async with client_of(*answers, max_list_bytes=1000) as (api, _):
        assert len(await api.list(PODS, "chat")) == 2


async def test_no_page_of_a_list_that_is_kept_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1000)
    answers = [page(*(["a" * 100] * 50)), page("a", token="t"), page("b")]
    async with client_of(*answers) as (api, server):
        assert len(await api.list(PODS, "chat")) == 2
    assert [request.query["limit"] for request in server.asked] == ["200", "25", "50"]


async def test_an_expired_list_restarts() -> None:
    answers = [page("a", token="t"), Answer(410, STATUS), page("b", token="u"), page("c")]
    async with client_of(*answers) as (api, server):
        config_maps = await api.list(CONFIG_MAPS)
    assert [each["metadata"]["name"] for each in config_maps] == ["b", "c"]
    assert [request.query.get("continue") for request in server.asked] == [None, "t", None, "u"]


async def test_a_list_that_keeps_expiring_fails_after_three_attempts() -> None:
    async with client_of(Answer(410, STATUS)) as (api, server):
        with pytest.raises(TransientError):
            await api.list(CONFIG_MAPS)
    assert len(server.asked) == 3


async def test_items_of_a_list_have_api_version_and_kind() -> None:
    async with client_of(page("a")) as (api, _):
        (deployment,) = await api.list(DEPLOYMENTS, "chat")
    assert (deployment["apiVersion"], deployment["kind"]) == ("apps/v1", "Deployment")


async def test_full_objects_come_without_managed_fields() -> None:
    metadata = {"name": "a", "uid": "a", "resourceVersion": "7"}
    managers = {"managedFields": [{"manager": "kubectl"}]}
    managed = {"metadata": metadata | managers, "spec": {"b": 1}}
    answer = Answer(body={"metadata": {"continue": "t"}, "items": [managed]})
    objects: list[Object] = []
    async with client_of(answer, pods("c")) as (api, server):
        await api.list_pages(
            Selection(DEPLOYMENTS, labels={"app": "d"}), ObjectParts.FULL, objects.append
        )
    type_meta = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert objects[0] == type_meta | {"metadata": metadata, "spec": {"b": 1}}
    assert objects[1]["metadata"]["name"] == "c"
    query = {"limit": "200", "labelSelector": "app=d"}
    assert [request.query for request in server.asked] == [query, query | {"continue": "t"}]


async def test_a_broken_answer_for_full_objects_is_a_transient_error() -> None:
    for body in ({"items": [{}]}, {"items": 7}, {"metadata": 7}):
        async with client_of(Answer(body=body)) as (api, _):
            with pytest.raises(TransientError, match="inferencedeployments"):
                await api.list_pages(
                    Selection(INFERENCE_DEPLOYMENTS), ObjectParts.FULL, lambda _: None
                )


async def test_the_accept_header_asks_for_metadata_alone_where_parts_are_metadata() -> None:
    async with client_of(pods("a")) as (api, server):
        await api.list_pages(Selection(INFERENCE_DEPLOYMENTS), ObjectParts.METADATA, lambda _: None)
        await api.list_pages(Selection(NODES), ObjectParts.PARTIAL, lambda _: None)
    assert [request.accept for request in server.asked] == [
        PARTIAL_METADATA_LIST,
        "application/json",
    ]


async def test_the_first_objects_are_read_by_one_request() -> None:
    async with client_of(pods("a", token="t")) as (api, server):
        await api.list_first(Selection(PODS, labels={"app": "d"}), ObjectParts.METADATA, 1)
    assert [request.query for request in server.asked] == [{"limit": "1", "labelSelector": "app=d"}]


async def test_the_first_objects_of_a_missing_kind_raise_kind_missing() -> None:
    async with client_of(Answer(404, STATUS)) as (api, _):
        with pytest.raises(KindMissingError):
            await api.list_first(Selection(INFERENCE_DEPLOYMENTS), ObjectParts.METADATA, 1)


async def test_each_passes_on_the_objects_of_all_pages() -> None:
    taken: list[str] = []
    answers = pods("a", "b", token="t"), pods("c", token="u"), pods("d")
    async with client_of(*answers) as (api, server):
        await api.list_pages(
            Selection(PODS, "chat"),
            ObjectParts.PARTIAL,
            lambda pod: taken.append(pod["metadata"]["name"]),
        )
    assert taken == ["a", "b", "c", "d"]
    assert [request.path for request in server.asked] == ["/api/v1/namespaces/chat/pods"] * 3
    assert [request.query for request in server.asked] == [
        {"limit": "500"},
        {"limit": "500", "continue": "t"},
        {"limit": "500", "continue": "u"},
    ]


async def test_a_page_that_is_too_long_is_read_in_smaller_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Hundreds of objects of the largest size take gigabytes in one page."""
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1000)
    taken: list[str] = []
    too_long = pods(*(f"pod-{number}" for number in range(100)))
    answers = too_long, too_long, pods("a", token="t"), pods("b", token="u"), pods("c")
    async with client_of(*answers) as (api, server):
        await api.list_pages(
            Selection(PODS), ObjectParts.PARTIAL, lambda pod: taken.append(pod["metadata"]["name"])
        )
    assert taken == ["a", "b", "c"]
    assert [request.query for request in server.asked] == [
        {"limit": "500"},
        {"limit": "62"},
        {"limit": "7"},
        {"limit": "14", "continue": "t"},
        {"limit": "28", "continue": "u"},
    ]


async def test_a_page_of_one_object_is_read_however_long_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 10)
    taken: list[str] = []
    async with client_of(pods("a")) as (api, server):
        await api.list_pages(
            Selection(PODS), ObjectParts.PARTIAL, lambda pod: taken.append(pod["metadata"]["name"])
        )
    assert taken == ["a"]
    assert [request.query["limit"] for request in server.asked] == ["500", "62", "7", "1"]


async def test_each_returns_the_version_of_the_list() -> None:
    async with client_of(pods("a", token="t", version="42"), pods("b", version="42")) as (api, _):
        for parts in ObjectParts:
            assert await api.list_pages(Selection(PODS), parts, lambda _: None) == "42"


async def test_each_leaves_the_restart_of_an_expired_list_to_its_caller() -> None:
    taken: list[str] = []
    async with client_of(pods("a", token="t"), Answer(410, STATUS)) as (api, server):
        with pytest.raises(ExpiredError):
            await api.list_pages(
                Selection(PODS),
                ObjectParts.PARTIAL,
                lambda pod: taken.append(pod["metadata"]["name"]),
            )
    assert (taken, len(server.asked)) == (["a"], 2)


async def test_a_list_and_a_watch_select_alike() -> None:
    selection = Selection(PODS, "chat", {"team": "a", "shard": None}, "status.phase!=Failed")
    selectors = {"labelSelector": "team=a,!shard", "fieldSelector": "status.phase!=Failed"}
    async with client_of(pods("a"), lines(event("ADDED", "a", "6"))) as (api, server):
        await api.list_pages(selection, ObjectParts.PARTIAL, lambda _: None)
        await watched(api, selection, since="5")
    listed, watch = server.asked
    assert listed.path == watch.path == "/api/v1/namespaces/chat/pods"
    assert listed.query == {"limit": "500", **selectors}
    assert watch.query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
        "timeoutSeconds": "300",
        **selectors,
    }


async def test_a_watch_yields_changes_and_bookmarks_until_it_ends() -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    stream = lines(event("ADDED", "a", "6"), event("DELETED", "b", "7"), bookmark)
    async with client_of(stream) as (api, _):
        events = await watched(api, Selection(PODS))
    versions = [(each.type, each.object["metadata"]["resourceVersion"]) for each in events]
    assert versions == [("ADDED", "6"), ("DELETED", "7"), ("BOOKMARK", "9")]


@pytest.mark.parametrize(("code", "want"), [(410, ExpiredError), (500, TransientError)])
@pytest.mark.parametrize("where", ["as an event", "as the answer"])
async def test_a_watch_that_fails_says_whether_its_version_is_too_old(
    code: int, want: type[ApiError], where: str
) -> None:
    status = STATUS | {"code": code}
    error = {"type": "ERROR", "object": status}
    answer = lines(error) if where == "as an event" else Answer(code, status)
    async with client_of(answer) as (api, _):
        with pytest.raises(TransientError, match="because") as caught:
            await watched(api, Selection(PODS))
    assert type(caught.value) is want


async def test_a_watch_reads_the_longest_object_that_an_api_server_stores() -> None:
    """It writes each `<` as six characters. A user who may create a pod may create such a one, and
    must not end the watch of all pods."""
    spec = b'{"containers": [{"name": "a", "args": ["%s"]}]}' % (rb"\u003c" * 1_500_000)
    head = json.dumps(event("ADDED", "a", "6")).encode().removesuffix(b"}}")
    stream = Answer(body=head + b', "spec": ' + spec + b"}}\n")
    async with client_of(stream) as (api, _):
        (seen,) = await watched(api, Selection(PODS))
    assert seen.object["metadata"]["name"] == "a"


async def test_a_watch_with_a_line_that_is_too_long_needs_a_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A watch from the same version would end at the same line for ever."""
    monkeypatch.setattr(transport, "MAX_LINE_BYTES", 100)
    begun = Answer(body=b'{"type": "ADDED", "object": {"metadata": {"name": "' + b"a" * 1000)
    async with client_of(begun) as (api, _):
        with pytest.raises(ExpiredError, match="a line has more than 100 bytes"):
            await watched(api, Selection(PODS))


async def test_a_watch_that_is_silent_from_the_start_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "WATCH_SILENT", 0.05)
    async with client_of(Answer(silent=True)) as (api, _):
        with pytest.raises(TransientError, match="watch Pod"):
            await watched(api, Selection(PODS))


async def test_a_watch_that_falls_silent_fails() -> None:
    async with lines_of(event("ADDED", "a", "6"), silent_seconds=2) as stream:
        assert b'"a"' in await anext(stream)
        with pytest.raises(TransientError, match="watch Node"):
            await anext(stream)


async def test_batched_reads_yield_whole_lines_without_waiting_for_further_ones() -> None:
    sent = [event("MODIFIED", "a", str(number)) for number in range(6)]
    async with lines_of(*sent, silent_seconds=60, batch_seconds=0.1) as stream:
        assert [json.loads(await anext(stream)) for _ in sent] == sent


@asynccontextmanager
async def lines_of(
    *sent: Object, silent_seconds: float, batch_seconds: float = 0.0
) -> AsyncIterator[AsyncIterator[bytes]]:
    """A watch that sends these events, each in pieces, and then nothing."""

    async def send(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        text = b"".join(json.dumps(each).encode() + b"\n" for each in sent)
        for begin in range(0, len(text), 50):
            await answer.write(text[begin : begin + 50])
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()
        return answer

    async with (
        RawTestServer(send) as server,
        ApiClient(Configuration(host=str(server.make_url("")))) as client,
        asyncio.timeout(120),
    ):
        request = Request("watch", "GET", NODES, None, None)
        async with aclosing(
            Transport(client, ignore).lines(request, silent_seconds, batch_seconds)
        ) as stream:
            yield stream


async def watched(api: AioKubeApi, selection: Selection, since: str = "1") -> list[WatchEvent]:
    return [each async for each in api.watch(selection, ObjectParts.PARTIAL, since)]


def event(event_type: str, name: str, version: str) -> Object:
    metadata = {"name": name, "uid": name, "resourceVersion": version}
    return {"type": event_type, "object": {"metadata": metadata}}


def lines(*events: Object) -> Answer:
    return Answer(body=b"".join(json.dumps(each).encode() + b"\n" for each in events))


def pods(*names: str, token: str = "", version: str = "9") -> Answer:
    items = [event("", name, "7")["object"] for name in names]
    return Answer(
        body={"metadata": {"continue": token, "resourceVersion": version}, "items": items}
    )


async def test_list_of_nothing_may_have_null_items() -> None:
    async with client_of(Answer(body={"items": None, "metadata": {}})) as (api, _):
        assert await api.list(CONFIG_MAPS) == []


async def test_closed_gate_lets_reads_through_and_no_write() -> None:
    def closed() -> float:
        raise NotLeadingError("the lease is lost")

    async with client_of(Answer(body=CONFIG_MAP), gate=closed) as (api, server):
        await api.get(CONFIG_MAPS, "chat", "facts")
        for write in (
            api.apply(CONFIG_MAPS, CONFIG_MAP),
            api.apply_status(CONFIG_MAPS, CONFIG_MAP),
            api.delete(CONFIG_MAPS, "chat", "facts", "u1", "7"),
            api.create_event(CONFIG_MAP),
        ):
            with pytest.raises(NotLeadingError):
                await write
    assert [request.method for request in server.asked] == ["GET"]


async def test_the_gate_limits_the_time_of_a_write_and_not_of_a_read() -> None:
    silent = Answer(body=CONFIG_MAP, silent=True)
    async with client_of(silent, gate=lambda: 0.05, timeout_seconds=0.3) as (api, _):
        for write in (
            api.apply(CONFIG_MAPS, CONFIG_MAP),
            api.apply_status(CONFIG_MAPS, CONFIG_MAP),
            api.delete(CONFIG_MAPS, "chat", "facts", "u1", "7"),
            api.create_event(CONFIG_MAP),
        ):
            with pytest.raises(TransientError, match=r"no answer within 0\.05 s"):
                await write
        with pytest.raises(TransientError, match=r"no answer within 0\.3 s"):
            await api.get(CONFIG_MAPS, "chat", "facts")


async def test_end_of_a_log_is_kept() -> None:
    log = b"".join(b"line %d\n" % number for number in range(1000))
    async with client_of(Answer(body=log)) as (api, server):
        text = await api.pod_log("chat", "llama-0", "vllm", previous=True, limit_bytes=9)
    assert text == "line 999\n"
    (request,) = server.asked
    assert request.path == "/api/v1/namespaces/chat/pods/llama-0/log"
    assert request.query == {
        "container": "vllm",
        "previous": "true",
        "tailLines": "1000",
        "limitBytes": "144",
    }


async def test_times_of_a_log_are_requested() -> None:
    async with client_of(Answer(body=b"2026-11-21T02:46:20Z line\n")) as (api, server):
        text = await api.pod_log(
            "chat", "llama-0", "vllm", previous=False, limit_bytes=99, timestamps=True
        )
    assert text == "2026-11-21T02:46:20Z line\n"
    (request,) = server.asked
    assert request.query["timestamps"] == "true"


async def test_log_is_any_bytes() -> None:
    async with client_of(Answer(body=b"\xff\xfeabc")) as (api, _):
        text = await api.pod_log("chat", "llama-0", "vllm", previous=False, limit_bytes=100)
    assert text.endswith("abc")


async def test_container_that_has_not_started_has_no_log() -> None:
    body = STATUS | {"message": "container is waiting to start: ContainerCreating"}
    async with client_of(Answer(400, body)) as (api, _):
        with pytest.raises(NotFoundError, match="waiting to start"):
            await api.pod_log("chat", "llama-0", "vllm", previous=False, limit_bytes=100)


async def test_every_request_is_observed() -> None:
    seen: list[tuple[str, str, str]] = []

    def observe(request: Request, code: str, _: float) -> None:
        seen.append((request.verb, request.kind.plural, code))

    async with client_of(Answer(409, STATUS), Answer(), observe=observe) as (api, _):
        with pytest.raises(ConflictError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
        await api.delete(CONFIG_MAPS, "chat", "facts", "u1", "7")
    assert seen == [("apply", "configmaps", "409"), ("delete", "configmaps", "200")]


async def test_completed_writes_are_collected() -> None:
    async with client_of(Answer(body=CONFIG_MAP), Answer(409, STATUS)) as (api, _):
        with collect_writes() as writes:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
            with pytest.raises(ConflictError):
                await api.apply(CONFIG_MAPS, CONFIG_MAP)
    enter_write("after the end")
    assert writes == ["apply ConfigMap chat/facts"]


@pytest.mark.parametrize(
    ("version", "want"),
    [(None, ("POST", "/leases")), ("7", ("PUT", "/leases/tonnage"))],
    ids=["create", "replace"],
)
async def test_lease_is_created_or_replaced(version: str | None, want: tuple[str, str]) -> None:
    metadata = {"name": "tonnage", "namespace": "ns"}
    if version:
        metadata["resourceVersion"] = version
    async with serving(Answer()) as server, ApiClient(Configuration(host=server.url)) as client:
        await AioLeaseApi(Transport(client, ignore)).put_lease({"metadata": metadata})
    (request,) = server.asked
    prefix = "/apis/coordination.k8s.io/v1/namespaces/ns"
    assert (request.method, request.path) == (want[0], prefix + want[1])
