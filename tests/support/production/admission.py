"""The admission of an API server: what it changes and refuses before an object is stored.

LimitRanger and webhooks change the object, and it is validated. Then ServiceAccount, LimitRanger,
PodSecurity and webhooks may refuse it, and the quota comes last, as in the server.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.support.api_server.fake_api import FakeApi
from tests.support.production.kinds import SERVICE_ACCOUNTS
from tests.support.production.limit_ranges import (
    fill_in_limits,
    find_excess,
    refuse_by_limit_range,
)
from tests.support.production.pod_security import refuse_by_pod_security
from tests.support.production.quotas import refuse_by_quota
from tests.support.production.webhooks import Webhook
from tonnage.kube.kinds import PODS
from tonnage.kube.protocol import ForbiddenError, InvalidError, Kind, NotFoundError, Object


@dataclass
class Admission:
    """Reads quotas, limit ranges, namespaces and service accounts of the server that asks it."""

    webhooks: list[Webhook] = field(default_factory=list)

    def admit(self, api: FakeApi, kind: Kind, body: Object, *, is_new: bool) -> None:
        """Change the body in place. Raises ForbiddenError or InvalidError with the server's
        message."""
        if kind == PODS and is_new:
            fill_in_limits(api, body)
        for webhook in self.webhooks:
            webhook.mutate(kind, body)
        excess = find_excess(body) if kind == PODS else None
        if excess is not None:
            raise InvalidError(f'Pod "{body["metadata"]["name"]}" is invalid: {excess}')
        refusals = [
            *(_refuse(kind, body, _refusals_of_pod(api, body)) if is_new and kind == PODS else ()),
            *(webhook.refuse(kind, body) for webhook in self.webhooks),
            *(_refuse(kind, body, [refuse_by_quota(api, kind, body)]) if is_new else ()),
        ]
        for message in filter(None, refusals):
            raise ForbiddenError(message)


def _refuse(kind: Kind, body: Object, reasons: Iterable[str | None]) -> Iterator[str]:
    """The server's message for each reason of a plugin of its own."""
    group = f".{kind.group}" if kind.group else ""
    for reason in filter(None, reasons):
        yield f'{kind.plural}{group} "{body["metadata"]["name"]}" is forbidden: {reason}'


def _refusals_of_pod(api: FakeApi, pod: Object) -> Iterator[str | None]:
    yield _refuse_by_account(api, pod)
    yield refuse_by_limit_range(api, pod)
    yield refuse_by_pod_security(api, pod)


def service_account(name: str, namespace: str = "chat") -> Object:
    """A ServiceAccount; every namespace has one named `default`."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _refuse_by_account(api: FakeApi, pod: Object) -> str | None:
    """Kubernetes plugin/pkg/admission/serviceaccount/admission.go."""
    name, namespace = pod["spec"].get("serviceAccountName", "default"), pod["metadata"]["namespace"]
    if name == "default":
        return None
    try:
        api.object(SERVICE_ACCOUNTS, namespace, name)
    except NotFoundError:
        what = f"error looking up service account {namespace}/{name}"
        return f'{what}: serviceaccount "{name}" not found'
    return None
