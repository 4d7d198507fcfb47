"""A mutating admission webhook on loopback, which changes what the API server is about to store."""

from __future__ import annotations

import base64
import copy
import json
from http.server import BaseHTTPRequestHandler
from types import TracebackType

from e2e.harness.admin import Admin
from e2e.harness.loopback_server import Certificate, LoopbackServer
from e2e.harness.ports import PortLease
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from tests.support.production.webhooks import Webhook

_NAME = "e2e-webhook"


class WebhookServer:
    """Serves a webhook that sees pods, for one namespace, while the `with` block runs. `changed`
    counts the objects that it has changed."""

    def __init__(self, stack: Stack, admin: Admin, webhook: Webhook, namespace: str) -> None:
        self.changed = 0
        self._is_asked = False
        self._admin = admin
        self._webhook = webhook
        self._namespace = namespace
        self._certificate = stack.layout.pki / "apiserver.crt"
        self._ports = PortLease(["webhook"])
        self._server = self._listen(stack)

    def __enter__(self) -> WebhookServer:
        self._server.start()
        self._admin.apply(self._configuration())
        self._admin.until("the API server to ask the webhook", self._try)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.delete("mutatingwebhookconfigurations", _NAME)
        self._server.stop()
        self._ports.release()

    def review(self, review: Json) -> Json:
        """The answer to an AdmissionReview: the changed spec as a JSON patch."""
        request = review["request"]
        body = copy.deepcopy(request["object"])
        kind = next(one for one in self._webhook.kinds if one.kind == request["kind"]["kind"])
        self._webhook.mutate(kind, body)
        response: Json = {"uid": request["uid"], "allowed": True}
        self._is_asked = True
        if body != request["object"]:
            self.changed += not request.get("dryRun")
            patch = [{"op": "replace", "path": "/spec", "value": body["spec"]}]
            text = base64.b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": text}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    def _try(self) -> bool:
        """Whether the API server asks for a pod: it does so a moment after it has stored the
        configuration."""
        spec = {"containers": [{"name": "main", "image": "probe"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": spec}
        path = self._admin.resource("pods").path(self._namespace)
        self._admin.rest.request("POST", path, pod, query={"dryRun": "All"})
        return self._is_asked

    def _configuration(self) -> Json:
        rules = [
            {
                "apiGroups": [kind.group],
                "apiVersions": [kind.version],
                "resources": [kind.plural],
                "operations": ["CREATE", "UPDATE"],
            }
            for kind in self._webhook.kinds
        ]
        client = {
            "url": f"https://127.0.0.1:{self._ports.ports['webhook']}/",
            "caBundle": base64.b64encode(self._certificate.read_bytes()).decode(),
        }
        labels = {"kubernetes.io/metadata.name": self._namespace}
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": _NAME},
            "webhooks": [
                {
                    "name": "mutate.example.com",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Fail",
                    "clientConfig": client,
                    "namespaceSelector": {"matchLabels": labels},
                    "rules": rules,
                }
            ],
        }

    def _listen(self, stack: Stack) -> LoopbackServer:
        answer = self.review

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"]))
                body = json.dumps(answer(json.loads(text))).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent: the audit log has every request already."""

        certificate = Certificate(self._certificate, stack.layout.pki / "apiserver.key")
        return LoopbackServer(Handler, port=self._ports.ports["webhook"], certificate=certificate)
