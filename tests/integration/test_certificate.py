"""The certificate of the operator's server while it serves, with those of the control plane."""

import shutil
import ssl
from pathlib import Path

import pytest

from e2e.harness.stack import Stack
from tonnage.controller.certificate import CertificateError, ServerCertificate


class Files:
    """The two files that a kubelet mounts."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"

    def put(self, certificate: Path, key: Path) -> None:
        shutil.copy(certificate, self.certificate)
        shutil.copy(key, self.key)

    def read(self) -> ServerCertificate:
        return ServerCertificate(str(self.certificate), str(self.key))


@pytest.fixture
def pairs(control_plane: Stack) -> tuple[tuple[Path, Path], tuple[Path, Path]]:
    """Two certificates that servers made for themselves, each with its key."""
    pki = control_plane.layout.pki
    manager = pki / "kube-controller-manager" / "kube-controller-manager"
    return (
        (pki / "apiserver.crt", pki / "apiserver.key"),
        (manager.with_suffix(".crt"), manager.with_suffix(".key")),
    )


def served_by(certificate: ServerCertificate) -> bytes:
    """The certificate that a client is shown in a new handshake."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_side = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    client_side = client.wrap_bio(to_client, to_server)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = client_side.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def content(path: Path) -> bytes:
    """The first certificate of a file, as in a handshake."""
    end = "-----END CERTIFICATE-----"
    return ssl.PEM_cert_to_DER_cert(path.read_text("utf-8").split(end)[0] + end + "\n")


async def test_a_renewed_certificate_serves_from_the_next_connection_on(
    tmp_path: Path, pairs: tuple[tuple[Path, Path], tuple[Path, Path]]
) -> None:
    files = Files(tmp_path)
    files.put(*pairs[0])
    certificate = files.read()
    assert served_by(certificate) == content(pairs[0][0])
    files.put(*pairs[1])
    await certificate.refresh()
    assert served_by(certificate) == content(pairs[1][0])


async def test_files_that_do_not_belong_together_change_nothing(
    tmp_path: Path,
    pairs: tuple[tuple[Path, Path], tuple[Path, Path]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = Files(tmp_path)
    files.put(*pairs[0])
    certificate = files.read()
    shutil.copy(pairs[1][0], files.certificate)  # and its key comes a moment later
    for _ in range(2):
        await certificate.refresh()
    assert served_by(certificate) == content(pairs[0][0])
    assert caplog.text.count("using the last valid certificate") == 1
    with pytest.raises(CertificateError, match="are no certificate and its key"):
        files.read()
    shutil.copy(pairs[1][1], files.key)
    await certificate.refresh()
    assert served_by(certificate) == content(pairs[1][0])
