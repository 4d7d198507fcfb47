"""A mutating admission webhook on loopback, which changes what the API server is about to store."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from e2e.harness.admin import Admin
from e2e.harness.ports import PortLease
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from tests.support.production.webhooks import Webhook

_NAME = "e2e-webhook"


class WebhookServer:
    """Serves a webhook for one namespace while the `with` block runs. `changed` counts the objects
    that it has changed."""

    def __init__(self, stack: Stack, admin: Admin, webhook: Webhook, namespace: str) -> None:
        self.changed = 0
        self._admin = admin
        self._webhook = webhook
        self._namespace = namespace
        self._certificate = stack.layout.pki / "apiserver.crt"
        self._ports = PortLease(["webhook"])
        self._server = self._listen(stack)

    def __enter__(self) -> WebhookServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self._admin.apply(self._configuration())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admin.delete("mutatingwebhookconfigurations", _NAME)
        self._server.shutdown()
        self._server.server_close()
        self._ports.release()

    def review(self, review: Json) -> Json:
        """The answer to an AdmissionReview: the changed spec as a JSON patch."""
        request = review["request"]
        body = copy.deepcopy(request["object"])
        kind = next(one for one in self._webhook.kinds if one.kind == request["kind"]["kind"])
        self._webhook.mutate(kind, body)
        response: Json = {"uid": request["uid"], "allowed": True}
        if body != request["object"]:
            self.changed += 1
            patch = [{"op": "replace", "path": "/spec", "value": body["spec"]}]
            text = base64.b64encode(json.dumps(patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": text}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

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

    def _listen(self, stack: Stack) -> ThreadingHTTPServer:
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

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, stack.layout.pki / "apiserver.key")
        server = ThreadingHTTPServer(("127.0.0.1", self._ports.ports["webhook"]), Handler)
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        return server
