"""Read the files of one repository at one commit, within limits of size and time.

huggingface_hub's own readers retry as long as the server asks and take as much as it sends. This
module never retries (the work queue does), and a read takes no more time and memory than its caller
allows. URLs, headers, the HTTP client and the error classes are huggingface_hub's.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx
from huggingface_hub import hf_hub_url, hf_raise_for_status
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined] # lazy export

from tonnage.checkpoint.hub.session import guarded_session
from tonnage.checkpoint.model import CheckpointError

CHUNK_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """A repository at one commit: `sizes` has each file's bytes, None where the Hub omits them.

    Reads stop when time.monotonic() passes `deadline`.
    """

    endpoint: str
    repo: str
    commit: str
    sizes: Mapping[str, int | None]
    token: str | None
    request_timeout_seconds: float
    deadline: float

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Return the content of a file.

        Raises CheckpointError for more than `limit_bytes`, without fetching the file if its size is
        known; errors of huggingface_hub and httpx; TimeoutError after the deadline.
        """
        size = self.sizes.get(name)
        if size is None or size <= limit_bytes:
            content = self._fetch(name, limit_bytes + 1, {})
            if len(content) <= limit_bytes:
                return content
        raise CheckpointError(
            f"{name} has {size or f'more than {limit_bytes}'} bytes, "
            f"at most {limit_bytes} were expected"
        )

    def read_start(self, name: str, count: int) -> bytes:
        """Return the first `count` bytes of a file, or all of a shorter one. Raises as `read`."""
        return self._fetch(name, count, {"Range": f"bytes=0-{count - 1}"})

    def _fetch(self, name: str, count: int, headers: Mapping[str, str]) -> bytes:
        self._check_deadline()
        url = hf_hub_url(self.repo, name, revision=self.commit, endpoint=self.endpoint)
        request_headers = build_hf_headers(
            # False: never use the token of the machine's own account for a user's object.
            token=self.token or False,
            library_name="tonnage",
            headers={**headers, "Accept-Encoding": "identity"},
        )
        with guarded_session().stream(
            "GET", url, headers=request_headers, timeout=self.request_timeout_seconds
        ) as response:
            if not response.is_success:
                response.close()  # the headers have the cause; the body may have any size
                hf_raise_for_status(response)
            return self._read_body(response, count)

    def _read_body(self, response: httpx.Response, count: int) -> bytes:
        """Return at most `count` bytes; a server without range requests sends the whole file."""
        content = bytearray()
        for chunk in response.iter_raw(CHUNK_BYTES):
            content += chunk
            if len(content) > count:
                break
            self._check_deadline()
        return bytes(content[:count])

    def _check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise TimeoutError("the lookup as a whole took too long")
