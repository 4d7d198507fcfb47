"""A Hugging Face Hub for tests: the Hub's own URL layout, status codes and headers, on loopback.

It knows models with files, branches, private and gated repositories and tokens; a test can make it
fail, stall and behave like a poorer mirror. A file may be far larger than memory: of a
`HubFile` only the start is kept, the rest are zeros that no client should ask for.

    with HubServer() as hub:
        hub.add_repo("acme/tiny", {"config.json": HubFile.of(b"{}")})
        ... HF_ENDPOINT=hub.endpoint ...
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit

from e2e.harness.loopback_server import LoopbackServer

_BITS = {"F32": 32, "BF16": 16, "F16": 16, "F8_E4M3": 8, "U8": 8, "I32": 32, "I64": 64}
_TREE = re.compile(r"/api/models/(?P<repo>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)")
_API = re.compile(r"/api/models/(?P<repo>[^/]+(?:/[^/]+)?)(?:/revision/(?P<revision>[^/]+))?")
_RESOLVE = re.compile(r"/(?P<repo>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_CHUNK = 1 << 16


@dataclass(frozen=True)
class HubFile:
    """A file: its first bytes, and its size; what lies between is zero."""

    start: bytes
    size: int

    @classmethod
    def of(cls, content: bytes | str) -> Self:
        """A file with exactly this content."""
        data = content.encode() if isinstance(content, str) else content
        return cls(data, len(data))

    def read(self, begin: int, end: int) -> Iterator[bytes]:
        """The bytes from begin up to end, in pieces."""
        while begin < end:
            stop = min(end, begin + _CHUNK)
            piece = self.start[begin:stop]
            yield piece + bytes(stop - begin - len(piece))
            begin = stop


def safetensors_file(tensors: Mapping[str, tuple[str, list[int]]]) -> HubFile:
    """A valid safetensors file of these tensors (name to dtype and shape), all zero."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        elements = 1
        for size in shape:
            elements *= size
        end = offset + elements * _BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    start = len(text).to_bytes(8, "little") + text
    return HubFile(start, len(start) + offset)


def safetensors_index(files: Mapping[str, HubFile]) -> HubFile:
    """The model.safetensors.index.json of these files, read from their headers."""
    weight_map: dict[str, str] = {}
    total = 0
    for file_name, file in files.items():
        length = int.from_bytes(file.start[:8], "little")
        total += file.size - 8 - length
        tensors = json.loads(file.start[8 : 8 + length])
        weight_map |= {name: file_name for name in tensors if name != "__metadata__"}
    return HubFile.of(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))


@dataclass
class Repo:
    """One model: its files at the one commit that all its revisions name."""

    files: dict[str, HubFile]
    commit: str
    revisions: set[str]
    private: bool
    gated: bool
    readers: set[str]

    def lets_in(self, token: str | None) -> bool:
        """Whether this token may read what is not public."""
        return token in self.readers


@dataclass(frozen=True)
class Answer:
    """What every request gets instead, when a test wants trouble."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class _RefusalError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class HubServer(LoopbackServer):
    """The server; a context manager. Its switches may be set while it runs.

    `requests` lists what was asked, as "GET /path", `authorizations` with which headers; `trouble`
    is given to every request. `error_codes`, `ranges` and `sizes` False leave out X-Error-Code,
    range requests and sizes in listings, as mirrors do; `listed_sizes` are wrong sizes of files in
    listings, `missing_files` are listed but not there, `redirects` sends readers of a file to a
    URL. Asked as a proxy it answers for every host.
    """

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens: set[str] = set()
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.trouble: Answer | None = None
        self.error_codes = True
        self.ranges = True
        self.sizes = True
        self.listed_sizes: dict[str, int] = {}
        self.missing_files: set[str] = set()
        self.redirects: dict[str, str] = {}
        self._stall = threading.Event()
        self._stall.set()
        own = type("Handler", (_Handler,), {"hub": self})
        super().__init__(own)

    @property
    def endpoint(self) -> str:
        """What HF_ENDPOINT is set to."""
        return self.url

    def stop(self) -> None:
        """Stop listening, and let go what was held back."""
        self._stall.set()
        super().stop()

    def stall(self) -> None:
        """Answer nothing any more, until the server stops."""
        self._stall.clear()

    def wait_while_stalled(self) -> None:
        """Hold a request back; used by the handler."""
        self._stall.wait()

    def add_repo(
        self,
        repo: str,
        files: Mapping[str, HubFile],
        *,
        revisions: tuple[str, ...] = ("main",),
        private: bool = False,
        gated: bool = False,
        readers: tuple[str, ...] = (),
    ) -> str:
        """Add or replace a model and return its commit, which follows from its files."""
        content = repr(sorted(files.items())).encode()
        commit = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        self.repos[repo] = Repo(
            dict(files), commit, {*revisions, commit}, private, gated, set(readers)
        )
        self.tokens |= set(readers)
        return commit


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes: 40 ms a request otherwise

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal: `requests` has it."""

    def _answer(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        self.hub.authorizations.add(self.headers.get("Authorization"))
        self.hub.wait_while_stalled()
        if self.hub.trouble is not None:
            trouble = self.hub.trouble
            self._send(trouble.status, trouble.headers, trouble.body)
            return
        try:
            self._route(urlsplit(self.path).path)
        except _RefusalError as refusal:
            headers = {"X-Error-Message": refusal.message} if refusal.message else {}
            if self.hub.error_codes and refusal.code:
                headers["X-Error-Code"] = refusal.code
            self._send(refusal.status, headers, b"")

    def _route(self, path: str) -> None:
        if match := _RESOLVE.fullmatch(path):
            self._send_file(match["repo"], unquote(match["revision"]), unquote(match["file"]))
        elif match := _API.fullmatch(path):
            revision = unquote(match["revision"] or "main")
            self._send_listing(match["repo"], revision)
        elif match := _TREE.fullmatch(path):
            self._send_tree(match["repo"], unquote(match["revision"]))
        else:
            raise _RefusalError(404)

    def _send_tree(self, repo_id: str, revision: str) -> None:
        repo = self._find(repo_id, revision)
        tree = [
            {"type": "file", "path": name, "size": file.size, "oid": "0" * 40}
            for name, file in repo.files.items()
        ]
        self._send(200, {"Content-Type": "application/json"}, json.dumps(tree).encode())

    def _send_listing(self, repo_id: str, revision: str) -> None:
        repo = self._find(repo_id, revision)
        with_sizes = self.hub.sizes and "blobs" in parse_qs(urlsplit(self.path).query)
        siblings = [
            {
                "rfilename": name,
                **({"size": self.hub.listed_sizes.get(name, file.size)} if with_sizes else {}),
            }
            for name, file in repo.files.items()
        ]
        listing = {
            "id": repo_id,
            "sha": repo.commit,
            "private": repo.private,
            "gated": "manual" if repo.gated else False,
            "siblings": siblings,
        }
        body = json.dumps(listing).encode()
        self._send(200, {"Content-Type": "application/json"}, body)

    def _send_file(self, repo_id: str, revision: str, name: str) -> None:
        repo = self._find(repo_id, revision)
        token = self._token()
        if repo.gated and not repo.lets_in(token):
            status = 403 if token else 401
            raise _RefusalError(status, "GatedRepo", f"Access to model {repo_id} is restricted.")
        file = repo.files.get(name)
        if file is None or name in self.hub.missing_files:
            raise _RefusalError(404, "EntryNotFound", "Entry not found")
        if name in self.hub.redirects:
            self._send(302, {"Location": self.hub.redirects[name]}, b"")
            return
        begin, end = 0, file.size
        headers = {
            "ETag": f'"{hashlib.sha256(file.start).hexdigest()}"',
            "X-Repo-Commit": repo.commit,
            "X-Linked-Size": str(file.size),
        }
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and self.hub.ranges:
            begin, end = int(asked[1]), min(int(asked[2]) + 1, file.size)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{file.size}"
        headers |= {"Content-Length": str(end - begin), "Accept-Ranges": "bytes"}
        self._begin(206 if "Content-Range" in headers else 200, headers)
        if self.command == "GET":
            for piece in file.read(begin, end):
                if not self._write(piece):
                    break

    def _find(self, repo_id: str, revision: str) -> Repo:
        token = self._token()
        repo = self.hub.repos.get(repo_id)
        if repo is None or (repo.private and not repo.lets_in(token)):
            # The Hub does not tell strangers which repositories exist.
            if token is None:
                raise _RefusalError(401, "RepoNotFound", "Invalid username or password.")
            raise _RefusalError(404, "RepoNotFound", "Repository not found")
        if revision not in repo.revisions:
            raise _RefusalError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo

    def _token(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ") or None
        if token is not None and token not in self.hub.tokens:
            raise _RefusalError(401, message="Invalid credentials in Authorization header")
        return token

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self._begin(status, {"Content-Length": str(len(body)), **headers})
        if self.command == "GET":
            self._write(body)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _write(self, data: bytes) -> bool:
        """Whether the client still reads; it may have seen enough."""
        try:
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            return False
        return True
