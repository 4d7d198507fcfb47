"""The client on the wire: paths, errors, paging, retries, the gate."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.scripted_server import Answer, Asked, ScriptedServer, serving
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.journal import enter_write, journal_of_writes
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
)
from tonnage.kube.lean import PARTIAL_METADATA_LIST
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    ForbiddenError,
    Gate,
    InvalidError,
    KindMissingError,
    Listing,
    NotFoundError,
    NotLeadingError,
    Object,
    Parts,
    TransientError,
)
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport

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
    gate: Gate = open_gate,
    observe: Callable[[Request, str, float], None] = ignore,
    timeout_seconds: float = 5.0,
) -> AsyncIterator[tuple[AioKubeApi, ScriptedServer]]:
    async with serving(*answers) as server, ApiClient(Configuration(host=server.url)) as client:
        api = AioKubeApi(
            Transport(client, observe),
            before_write=gate,
            bucket=TokenBucket(1000, 1000),
            timeout_seconds=timeout_seconds,
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
    assert [(asked.method, asked.path) for asked in server.asked] == [want]


async def test_no_answer_is_to_be_packed() -> None:
    async with client_of(Answer(body={"metadata": {}, "items": []})) as (api, server):
        await api.list(CONFIG_MAPS, "chat")
        await api.each(Listing(NODES, Parts.LEAN), lambda _: None)
    assert [asked.encodings for asked in server.asked] == ["identity", "identity"]


async def test_apply_is_a_forced_server_side_apply() -> None:
    async with client_of(Answer(body=CONFIG_MAP)) as (api, server):
        await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert server.asked == [
        Asked(
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
    (asked,) = server.asked
    assert asked.path.endswith("/namespaces/chat/inferencedeployments/llama/status")
    assert asked.query == {"fieldManager": "tonnage-status", "force": "true"}


async def test_status_for_a_uid_is_pinned_to_the_version_that_has_it() -> None:
    live = {"metadata": {"name": "llama", "uid": "u1", "resourceVersion": "7"}}
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u1"}, "status": {}}
    async with client_of(Answer(body=live)) as (api, server):
        await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    assert [asked.method for asked in server.asked] == ["GET", "PATCH"]
    assert server.asked[1].body["metadata"]["resourceVersion"] == "7"
    assert "resourceVersion" not in body["metadata"]


async def test_status_for_another_uid_is_never_sent() -> None:
    live = {"metadata": {"name": "llama", "uid": "u2", "resourceVersion": "7"}}
    body = {"metadata": {"name": "llama", "namespace": "chat", "uid": "u1"}, "status": {}}
    async with client_of(Answer(body=live)) as (api, server):
        with pytest.raises(ConflictError, match="u1 is gone"):
            await api.apply_status(INFERENCE_DEPLOYMENTS, body)
    assert [asked.method for asked in server.asked] == ["GET"]


async def test_delete_carries_its_preconditions() -> None:
    async with client_of(Answer()) as (api, server):
        await api.delete(DEPLOYMENTS, "chat", "llama", "u1", "7")
    (asked,) = server.asked
    assert (asked.method, asked.path) == (
        "DELETE",
        "/apis/apps/v1/namespaces/chat/deployments/llama",
    )
    assert asked.body["preconditions"] == {"uid": "u1", "resourceVersion": "7"}
    assert asked.body["propagationPolicy"] == "Background"


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


async def test_delete_of_what_is_gone_is_done() -> None:
    async with client_of(Answer(404, STATUS)) as (api, server):
        await api.delete(DEPLOYMENTS, "chat", "llama", "u1", "7")
    assert len(server.asked) == 1


async def test_quota_refusal_keeps_the_servers_words() -> None:
    body = STATUS | {"message": "exceeded quota: gpus, requested: 8, used: 8, limited: 8"}
    async with client_of(Answer(403, body)) as (api, _):
        with pytest.raises(ForbiddenError, match="exceeded quota: gpus, requested: 8"):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


@pytest.mark.parametrize(
    ("header", "want"),
    [("7", 7.0), ("0", 0.0), ("99999", 300.0), ("soon", None), ("-1", None), ("", None)],
)
async def test_retry_after_is_heeded(header: str, want: float | None) -> None:
    async with client_of(Answer(429, STATUS, {"Retry-After": header})) as (api, _):
        with pytest.raises(TransientError) as caught:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert caught.value.retry_after == want


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>bad gateway</html>", b"[1]", b"null", b"[" * 100_000, b"\xff\xfe"],
    ids=["empty", "html", "list", "null", "deep", "not utf-8"],
)
async def test_answer_that_is_no_object_may_be_better_next_time(body: bytes) -> None:
    async with client_of(Answer(200, body)) as (api, _):
        with pytest.raises(TransientError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_failure_without_a_status_object_is_told_as_it_came() -> None:
    async with client_of(Answer(502, b"x" * 100_000)) as (api, _):
        with pytest.raises(TransientError) as caught:
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
    assert len(str(caught.value)) < 3000


async def test_silent_server_is_given_up() -> None:
    async with client_of(Answer(silent=True), timeout_seconds=0.05) as (api, _):
        with pytest.raises(TransientError, match=r"no answer within 0\.05 s"):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)


async def test_unreachable_server_is_transient() -> None:
    async with ApiClient(Configuration(host="http://127.0.0.1:1")) as client:
        leases = AioLeaseApi(Transport(client, ignore))
        with pytest.raises(TransientError, match="get Lease ns/tonnage"):
            await leases.get_lease("ns", "tonnage")


async def test_deadline_of_the_caller_is_the_callers() -> None:
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


async def test_read_that_is_asked_to_wait_long_is_left_to_the_queue() -> None:
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
    async with client_of(page("a", "b", token="next=="), page("c")) as (api, server):
        found = await api.list(CONFIG_MAPS, "chat", {"team": "a/b"})
    assert [each["metadata"]["name"] for each in found] == ["a", "b", "c"]
    assert [asked.query for asked in server.asked] == [
        {"limit": "200", "labelSelector": "team=a/b"},
        {"limit": "200", "labelSelector": "team=a/b", "continue": "next=="},
    ]


async def test_list_that_expired_is_begun_anew() -> None:
    answers = [page("a", token="t"), Answer(410, STATUS), page("b", token="u"), page("c")]
    async with client_of(*answers) as (api, server):
        found = await api.list(CONFIG_MAPS)
    assert [each["metadata"]["name"] for each in found] == ["b", "c"]
    assert [asked.query.get("continue") for asked in server.asked] == [None, "t", None, "u"]


async def test_list_that_keeps_expiring_is_given_up() -> None:
    async with client_of(Answer(410, STATUS)) as (api, server):
        with pytest.raises(TransientError):
            await api.list(CONFIG_MAPS)
    assert len(server.asked) == 3


async def test_items_of_a_list_say_what_they_are() -> None:
    async with client_of(page("a")) as (api, _):
        (found,) = await api.list(DEPLOYMENTS, "chat")
    assert (found["apiVersion"], found["kind"]) == ("apps/v1", "Deployment")


async def test_whole_objects_are_handed_over_without_their_managers() -> None:
    metadata = {"name": "a", "uid": "a", "managedFields": [{"manager": "kubectl"}]}
    managed = {"metadata": metadata, "spec": {"b": 1}}
    answer = Answer(body={"metadata": {"continue": "t"}, "items": [managed]})
    found: list[Object] = []
    async with client_of(answer, pods("c")) as (api, server):
        await api.each(Listing(DEPLOYMENTS, Parts.WHOLE, labels={"app": "d"}), found.append)
    named = {"apiVersion": "apps/v1", "kind": "Deployment"}
    assert found[0] == named | {"metadata": {"name": "a", "uid": "a"}, "spec": {"b": 1}}
    assert found[1]["metadata"]["name"] == "c"
    query = {"limit": "200", "labelSelector": "app=d"}
    assert [asked.query for asked in server.asked] == [query, query | {"continue": "t"}]


async def test_whole_objects_of_a_broken_answer_are_none() -> None:
    for body in ({"items": [{}]}, {"items": 7}, {"metadata": 7}):
        async with client_of(Answer(body=body)) as (api, _):
            with pytest.raises(TransientError, match="inferencedeployments"):
                await api.each(Listing(INFERENCE_DEPLOYMENTS, Parts.WHOLE), lambda _: None)


async def test_metadata_is_all_that_is_asked_for_where_nothing_else_is_read() -> None:
    async with client_of(pods("a")) as (api, server):
        await api.each(Listing(INFERENCE_DEPLOYMENTS, Parts.METADATA), lambda _: None)
        await api.each(Listing(NODES, Parts.LEAN), lambda _: None)
    assert [asked.accept for asked in server.asked] == [PARTIAL_METADATA_LIST, "application/json"]


async def test_a_probe_asks_for_one_object() -> None:
    async with client_of(page("a", token="t")) as (api, server):
        await api.probe(DEPLOYMENTS, labels={"app": "d"})
    assert [asked.query for asked in server.asked] == [{"limit": "1", "labelSelector": "app=d"}]


async def test_a_probe_of_a_kind_that_is_not_there_says_so() -> None:
    async with client_of(Answer(404, STATUS)) as (api, _):
        with pytest.raises(KindMissingError):
            await api.probe(INFERENCE_DEPLOYMENTS)


async def test_each_pod_is_handed_over_and_no_page_is_kept() -> None:
    taken: list[str] = []
    async with client_of(pods("a", "b", token="t"), pods("c")) as (api, server):
        await api.each(
            Listing(PODS, Parts.LEAN, "chat"), lambda pod: taken.append(pod["metadata"]["name"])
        )
    assert taken == ["a", "b", "c"]
    assert [asked.path for asked in server.asked] == ["/api/v1/namespaces/chat/pods"] * 2
    assert [asked.query for asked in server.asked] == [
        {"limit": "500"},
        {"limit": "500", "continue": "t"},
    ]


async def test_each_pod_is_handed_over_again_where_the_list_took_too_long() -> None:
    taken: list[str] = []
    answers = pods("a", token="t"), Answer(410, STATUS), pods("a", "b")
    async with client_of(*answers) as (api, _):
        await api.each(Listing(PODS, Parts.LEAN), lambda pod: taken.append(pod["metadata"]["name"]))
    assert taken == ["a", "a", "b"]


def pods(*names: str, token: str = "") -> Answer:
    items = [{"metadata": {"name": name, "uid": name}} for name in names]
    return Answer(body={"metadata": {"continue": token}, "items": items})


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
    assert [asked.method for asked in server.asked] == ["GET"]


async def test_a_write_is_given_up_when_the_gate_says_and_a_read_is_not() -> None:
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
    (asked,) = server.asked
    assert asked.path == "/api/v1/namespaces/chat/pods/llama-0/log"
    assert asked.query == {
        "container": "vllm",
        "previous": "true",
        "tailLines": "1000",
        "limitBytes": "144",
    }


async def test_log_is_any_bytes() -> None:
    async with client_of(Answer(body=b"\xff\xfeabc")) as (api, _):
        text = await api.pod_log("chat", "llama-0", "vllm", previous=False, limit_bytes=100)
    assert text.endswith("abc")


async def test_container_that_has_not_started_has_no_log() -> None:
    body = STATUS | {"message": "container is waiting to start: ContainerCreating"}
    async with client_of(Answer(400, body)) as (api, _):
        with pytest.raises(NotFoundError, match="waiting to start"):
            await api.pod_log("chat", "llama-0", "vllm", previous=False, limit_bytes=100)


async def test_every_exchange_is_counted() -> None:
    seen: list[tuple[str, str, str]] = []

    def observe(request: Request, code: str, _: float) -> None:
        seen.append((request.verb, request.kind.plural, code))

    async with client_of(Answer(409, STATUS), Answer(), observe=observe) as (api, _):
        with pytest.raises(ConflictError):
            await api.apply(CONFIG_MAPS, CONFIG_MAP)
        await api.delete(CONFIG_MAPS, "chat", "facts", "u1", "7")
    assert seen == [("apply", "configmaps", "409"), ("delete", "configmaps", "200")]


async def test_writes_that_were_done_are_in_the_journal() -> None:
    async with client_of(Answer(body=CONFIG_MAP), Answer(409, STATUS)) as (api, _):
        with journal_of_writes() as writes:
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
    (asked,) = server.asked
    prefix = "/apis/coordination.k8s.io/v1/namespaces/ns"
    assert (asked.method, asked.path) == (want[0], prefix + want[1])
