"""The certificate of the operator's own server, read again when its files change."""

import logging
import ssl
from pathlib import Path

_log = logging.getLogger(__name__)


class CertificateError(ValueError):
    """The files hold no usable certificate; the message names the file, and what was expected."""


class ServerCertificate:
    """A certificate chain and its private key, both in PEM files, and a TLS context with them.

    Raises CertificateError.
    """

    def __init__(self, certificate_file: str, key_file: str) -> None:
        self._certificate_file = certificate_file
        self._key_file = key_file
        self._content = self._read()
        self.context = self._load()
        self._last_failure = ""

    async def refresh(self) -> None:
        """Use the files' content from the next connection on, if it changed and is valid."""
        try:
            content = self._read()
            if content == self._content:
                return
            self._load()  # a failure leaves the context that serves as it is
            self.context.load_cert_chain(self._certificate_file, self._key_file)
        except (CertificateError, ssl.SSLError) as error:
            # A new certificate is without its key for a moment, so one failure means little.
            if str(error) != self._last_failure:
                _log.warning("using the last valid certificate: %s", error)
            self._last_failure = str(error)
            return
        self._content, self._last_failure = content, ""
        _log.info("certificate of the server read again: %s", self._certificate_file)

    def _read(self) -> tuple[bytes, bytes]:
        return _read_file(self._certificate_file), _read_file(self._key_file)

    def _load(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self._certificate_file, self._key_file, _refuse_password)
        except (ssl.SSLError, OSError) as error:
            raise CertificateError(
                f"{self._certificate_file} and {self._key_file} are no certificate and its key"
                f" ({error}), expected both in PEM, without a password"
            ) from None
        return context


def _refuse_password() -> str:
    """Without this function, OpenSSL asks for the password on the terminal."""
    raise CertificateError("the private key has a password, expected a key without one")


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CertificateError(f"{path} cannot be read: {error.strerror}") from None
