"""`tonnage run` passes its settings to the operator, and returns the operator's exit code."""

import pytest

from tonnage.cli.commands import run
from tonnage.cli.main import main


@pytest.fixture
def operator(monkeypatch):
    """A fake operator that records its settings and ends with 7."""
    seen = []

    async def run_operator(settings, *_):
        seen.append(settings)
        return 7

    monkeypatch.setattr(run, "run_operator", run_operator)
    monkeypatch.setattr(run, "configure_logging", lambda *_: None)
    return seen


def test_flags_become_settings(operator):
    argv = ["--kubeconfig", "k", "--listen", "127.0.0.1:9", "--namespace", "n"]
    assert main(["run", *argv]) == 7
    (settings,) = operator
    assert settings.kubeconfig == "k"
    assert (settings.listen_host, settings.listen_port) == ("127.0.0.1", 9)
    assert settings.namespace == "n"


@pytest.mark.parametrize("listen", ["8080", "host:port", ":8080", "127.0.0.1:99999"])
def test_an_invalid_address_is_refused(operator, listen, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["run", f"--listen={listen}"])
    assert ended.value.code == 2
    assert "is not host:port" in capsys.readouterr().err
    assert operator == []
