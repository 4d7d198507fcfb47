"""Settings from flags, Tonnage's variables and other variables, in this order."""

import argparse
from collections.abc import Mapping
from pathlib import Path

import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from tonnage.controller.settings import (
    Settings,
    SettingsError,
    add_arguments,
    process_identity,
    settings_from,
)


def parse(*arguments: str, environment: Mapping[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(prog="tonnage run")
    add_arguments(parser, environment or {})
    return settings_from(parser.parse_args(arguments))


def test_defaults_are_the_settings_own() -> None:
    assert parse() == Settings()


def test_settings_are_logged_without_credentials() -> None:
    logged = parse("--prometheus-url=http://u:pass@prometheus:9090", "--workers=3").to_dict()
    assert logged["prometheus_url"] == "http://***@prometheus:9090"
    assert logged["workers"] == 3


def test_the_help_shows_the_hub_of_the_environment_without_its_password(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parse("--help", environment={"HF_ENDPOINT": "https://robot:plan%2Fted@hub/a%20b"})
    shown = "".join(capsys.readouterr().out.split())
    assert "https://***@hub/a%20b" in shown
    assert "ted@" not in shown


def test_passwords_of_urls_are_secrets() -> None:
    settings = parse("--prometheus-url=http://u:pa%2Fss@p:9090", "--hf-endpoint=http://tok@hub")
    assert settings.secrets == ("pa%2Fss", "pa/ss")
    assert parse().secrets == ()


def test_flag_precedes_variable_and_tonnages_variable_others() -> None:
    others = {"POD_NAMESPACE": "pod", "HF_ENDPOINT": "https://mirror.example"}
    assert parse(environment=others).namespace == "pod"
    assert parse(environment=others).hf_endpoint == "https://mirror.example"
    variables = others | {"TONNAGE_NAMESPACE": "variable", "TONNAGE_WORKERS": "3"}
    assert parse(environment=variables).namespace == "variable"
    assert parse(environment=variables).workers == 3
    assert parse("--namespace", "flag", environment=variables).namespace == "flag"


def test_compute_domains_are_a_switch(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(environment={"TONNAGE_COMPUTE_DOMAINS": "true"}).compute_domains is True
    assert parse("--compute-domains=false").compute_domains is False
    with pytest.raises(SystemExit):
        parse("--compute-domains=yes")
    assert "yes is not true or false" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "want"),
    [("0.0.0.0:8080", ("0.0.0.0", 8080)), ("[::]:9", ("::", 9)), ("localhost:0", ("localhost", 0))],
)
def test_listen_address_has_host_and_port(address: str, want: tuple[str, int]) -> None:
    settings = parse("--listen", address)
    assert (settings.listen_host, settings.listen_port) == want


@pytest.mark.parametrize(
    ("flag", "value", "want"),
    [
        ("--listen", "8080", "is not host:port"),
        ("--listen", "host:99999", "is not host:port"),
        ("--workers", "0", "0 is not an integer of at least 1"),
        ("--workers", "many", "many is not an integer of at least 1"),
        ("--kube-api-qps", "fast", "fast is not a number above 0"),
        ("--kube-api-qps", "nan", "is not a number above 0"),
        ("--drain-seconds", "-1", "is not a number above 0"),
        ("--log-level", "loud", "is not debug, info, warning or error"),
        ("--metrics-auth", "password", "is not none or token"),
    ],
)
def test_bad_value_is_rejected_with_its_flag(
    flag: str, value: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flag, value)
    error = capsys.readouterr().err
    assert flag in error
    assert want in error


def test_bad_variable_is_rejected_like_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(environment={"TONNAGE_WORKERS": "many"})
    assert "--workers" in capsys.readouterr().err


def test_help_has_variables_and_defaults() -> None:
    parser = argparse.ArgumentParser(prog="tonnage run")
    add_arguments(parser, {})
    text = parser.format_help()
    assert "TONNAGE_KUBE_API_QPS" in text
    assert "default 500.0" in text


def test_two_processes_have_two_identities() -> None:
    assert process_identity() != process_identity()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("chat", ("chat",)),
        ("chat,search", ("chat", "search")),
        (" chat , chat ", ("chat",)),
        ("", ()),
    ],
)
def test_namespaces_are_a_list_and_none_are_all(text: str, want: tuple[str, ...]) -> None:
    assert parse("--namespaces", text).namespaces == want
    assert parse(environment={"TONNAGE_NAMESPACES": text}).namespaces == want


@pytest.mark.parametrize("text", ["Chat", "chat,", "chat;search", "*", "a" * 64])
def test_an_invalid_namespace_is_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("--namespaces", text)
    assert "is not the name of a namespace" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "want"), [("east", "east"), ("h100-1", "h100-1"), ("", None)])
def test_a_shard_is_a_name(text: str, want: str | None) -> None:
    assert parse("--shard", text).shard == want
    assert parse(environment={"TONNAGE_SHARD": text}).shard == want
    assert parse().shard is None


@pytest.mark.parametrize("text", ["East", "a,b", "a=b", "!a", "-a", "a" * 31])
def test_an_invalid_shard_is_rejected(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(f"--shard={text}")
    assert "is not the name of a shard" in capsys.readouterr().err


def test_an_empty_variable_means_no_prometheus() -> None:
    names = ("URL", "BEARER_TOKEN_FILE", "CA_FILE", "TENANT_HEADER")
    assert parse(environment={f"TONNAGE_PROMETHEUS_{name}": "" for name in names}) == Settings()


def test_a_tenant_is_a_header() -> None:
    settings = parse("--prometheus-url=http://p", "--prometheus-tenant-header=THANOS-TENANT=a=b")
    assert settings.prometheus_tenant_header == ("THANOS-TENANT", "a=b")


@pytest.mark.parametrize(
    ("flag", "value", "want"),
    [
        ("--prometheus-url", "prometheus:9090", "is not the address of a Prometheus"),
        ("--prometheus-url", "ftp://prometheus", "is not the address of a Prometheus"),
        ("--prometheus-url", "http://p:70000", "is not the address of a Prometheus"),
        ("--prometheus-url", "http://a..b", "is not the address of a Prometheus"),
        ("--prometheus-url", "http://p/?q=1", "is not the address of a Prometheus"),
        ("--prometheus-url", "http://u:planted@[p", "http://***@[p"),
        ("--prometheus-url", "http://u:a#planted@p", "http://***@p"),
        ("--prometheus-url", "http://u:a/planted@p", "percent-encode /, ?, # and @"),
        ("--prometheus-url", "u:planted@p:9090", "'***@p:9090' is not the address"),
        ("--prometheus-tenant-header", "team-a", "expected NAME=VALUE"),
        ("--prometheus-tenant-header", "X-Tenant=a\r\nHost: b", "expected NAME=VALUE"),
        ("--prometheus-tenant-header", "Authorization=Basic", "is not a tenant header"),
        ("--prometheus-bearer-token-file", "/none/token", "/none/token cannot be read: No such"),
        ("--prometheus-ca-file", "/none/ca.crt", "/none/ca.crt cannot be read: No such"),
        ("--prometheus-deadline-seconds", "0", "is not a number above 0"),
    ],
)
def test_an_invalid_prometheus_setting_is_rejected_with_its_flag(
    flag: str, value: str, want: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flag, value)
    error = capsys.readouterr().err
    assert f"argument {flag}: " in error
    assert want in error
    assert "planted" not in error


@pytest.mark.parametrize(
    "url", ["https://u:a#planted@hub", "https://u:a/planted@hub", "u:planted@hub", "ftp://hub"]
)
def test_a_hub_whose_address_is_invalid_is_refused_without_its_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address is in the variables of pods and in the statuses of objects, without the password
    only where it is clear where that ends."""
    for arguments, environment in (([f"--hf-endpoint={url}"], {}), ([], {"HF_ENDPOINT": url})):
        with pytest.raises(SystemExit):
            parse(*arguments, environment=environment)
        error = capsys.readouterr().err
        assert "argument --hf-endpoint: " in error
        assert "is not the address of a Hub" in error
        assert "planted" not in error


@pytest.mark.parametrize(
    ("flag", "content", "want"),
    [
        ("--prometheus-bearer-token-file", "planted token\n", "does not hold one token"),
        ("--prometheus-bearer-token-file", "", "does not hold one token"),
        ("--prometheus-bearer-token-file", "x" * 17_000, "is too long for a token"),
        ("--prometheus-ca-file", "planted", "holds no certificates"),
        ("--prometheus-ca-file", "", "holds no certificates"),
    ],
)
def test_a_file_of_something_else_is_rejected_and_not_quoted(
    flag: str, content: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit):
        parse("--prometheus-url=https://p", flag, str(file))
    error = capsys.readouterr().err
    assert f"argument {flag}: {file} {want}" in error
    assert "planted" not in error


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (
            ["--prometheus-tenant-header=a=b"],
            "--prometheus-tenant-header requires --prometheus-url",
        ),
        (
            ["--prometheus-url=http://p", f"--prometheus-ca-file={DEFAULT_CA_BUNDLE_PATH}"],
            "--prometheus-ca-file requires a --prometheus-url with https",
        ),
        (
            ["--prometheus-url=http://u:planted@p", "--prometheus-bearer-token-file=TOKEN"],
            "--prometheus-bearer-token-file: --prometheus-url has a password",
        ),
    ],
)
def test_contradictory_settings_are_rejected(
    arguments: list[str], want: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("planted-token\n", encoding="utf-8")
    with pytest.raises(SettingsError, match=want) as raised:
        parse(*(argument.replace("TOKEN", str(token)) for argument in arguments))
    assert "planted" not in str(raised.value)


def test_a_certificate_needs_its_key_and_both_need_to_be_readable(tmp_path: Path) -> None:
    path = str(tmp_path / "tls.crt")
    with pytest.raises(SettingsError, match="--tls-certificate-file requires --tls-key-file"):
        parse(f"--tls-certificate-file={path}")
    with pytest.raises(SettingsError, match="--tls-key-file requires --tls-certificate-file"):
        parse(f"--tls-key-file={path}")
    with pytest.raises(SettingsError, match=r"tls\.crt cannot be read"):
        parse(f"--tls-certificate-file={path}", f"--tls-key-file={path}")
    assert parse(environment={"TONNAGE_TLS_KEY_FILE": ""}).read_certificate() is None


def test_registry_mirrors_are_pairs_and_none_by_default() -> None:
    pairs = (("vllm", "registry.example.com/vllm"),)
    assert parse("--registry-mirrors", "vllm=registry.example.com/vllm").registry_mirrors == pairs
    assert parse(environment={"TONNAGE_REGISTRY_MIRRORS": ""}).registry_mirrors is None
    with pytest.raises(SystemExit):
        parse("--registry-mirrors", "registry.example.com")
