"""Files that hold no certificate. Those that do are in tests/integration/test_certificate.py."""

from pathlib import Path

import pytest

from tonnage.controller.certificate import CertificateError, ServerCertificate

PEM = "-----BEGIN {0}-----\nMIIB\n-----END {0}-----\n"


@pytest.mark.parametrize(
    ("certificate", "key", "want"),
    [
        (None, "x", "certificate.pem cannot be read: No such file"),
        ("x", None, "key.pem cannot be read: No such file"),
        ("", "", "expected both in PEM, without a password"),
        (PEM.format("CERTIFICATE"), PEM.format("EC PRIVATE KEY"), "expected both in PEM"),
        ("\x00\xff", "\x00", "expected both in PEM"),
    ],
)
def test_files_without_a_certificate_are_refused_by_name(
    tmp_path: Path, certificate: str | None, key: str | None, want: str
) -> None:
    files = {"certificate.pem": certificate, "key.pem": key}
    for name, text in files.items():
        if text is not None:
            (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(CertificateError, match=want):
        ServerCertificate(*(str(tmp_path / name) for name in files))
