"""Which cluster and namespace the kubeconfig, the pod or the environment selects."""

from pathlib import Path

import pytest
from kubernetes.aio import config
from kubernetes.aio.config import kube_config

from tests.support.api_server.kubeconfigs import write_kubeconfig
from tonnage.kube.connection import ConnectionConfigError, connect, context_namespace


@pytest.fixture(autouse=True)
def outside_of_any_pod(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


@pytest.fixture
def kubeconfig(tmp_path):
    return write_kubeconfig(tmp_path / "kubeconfig", one="chat", two=None)


@pytest.mark.parametrize(("context", "want"), [(None, "chat"), ("one", "chat"), ("two", None)])
def test_the_namespace_is_that_of_the_context(kubeconfig, context, want):
    assert context_namespace(kubeconfig, context) == want


def test_the_error_names_a_missing_context(kubeconfig):
    with pytest.raises(ConnectionConfigError, match="no context 'three'"):
        context_namespace(kubeconfig, "three")


async def test_the_error_names_a_missing_kubeconfig(tmp_path, capfd):
    path = str(tmp_path / "missing")
    with pytest.raises(ConnectionConfigError, match="missing is not a file"):
        context_namespace(path)
    with pytest.raises(ConnectionConfigError, match="missing is not a file"):
        async with connect(path):
            pass
    assert capfd.readouterr() == ("", "")


async def test_without_any_kubeconfig_the_error_says_what_to_set(tmp_path, capfd, monkeypatch):
    default_paths = f"{tmp_path}/one:{tmp_path}/two"
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", default_paths)
    message = f"there is no kubeconfig {default_paths}: give --kubeconfig, or set KUBECONFIG"
    with pytest.raises(ConnectionConfigError, match=message):
        context_namespace()
    with pytest.raises(ConnectionConfigError, match=message):
        async with connect():
            pass
    assert capfd.readouterr() == ("", "")


def test_the_namespace_in_a_pod_is_the_pods_own(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("POD_NAMESPACE", "tonnage-system")
    assert context_namespace() == "tonnage-system"


def test_the_default_kubeconfig_may_be_relative_to_home(kubeconfig, monkeypatch):
    monkeypatch.setenv("HOME", str(Path(kubeconfig).parent))
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", "~/kubeconfig")
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", "~/kubeconfig")
    assert context_namespace() == "chat"


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({}, None),
        ({"https_proxy": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"https_proxy": "http://proxy.example:3128", "no_proxy": "127.0.0.1"}, None),
    ],
)
async def test_the_client_reads_the_proxy_once_and_no_netrc(
    kubeconfig, monkeypatch, environment, want
):
    for name in ("https_proxy", "no_proxy", "all_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with connect(str(kubeconfig)) as connection:
        assert connection.client.configuration.proxy == want
        assert connection.client.configuration.client_session_kwargs == {"trust_env": False}
