"""Commands render pods by the settings that the operator has."""

import pytest

from tonnage.cli.main import build_parser
from tonnage.cli.sources.render_settings import read_render_settings
from tonnage.engines.inputs import RenderSettings

COMMANDS = {"plan": ["plan", "-f", "llama.yaml"], "explain": ["explain", "llama"]}


def settings_of(command: str, *flags: str) -> RenderSettings:
    options = build_parser(command).parse_args([*COMMANDS[command], *flags])
    return read_render_settings(options, "https://hub.example")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_flags_they_are_the_defaults_of_the_operator(command: str) -> None:
    assert settings_of(command) == RenderSettings("https://hub.example")


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_and_variables_are_those_of_the_operator(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = RenderSettings(
        "https://hub.example", (("vllm", "registry.example/vllm"),), privileged_pools=True
    )
    mirrors = "vllm=registry.example/vllm"
    flags = (f"--registry-mirrors={mirrors}", "--pool-pod-security=privileged")
    assert settings_of(command, *flags) == wanted
    monkeypatch.setenv("TONNAGE_REGISTRY_MIRRORS", mirrors)
    monkeypatch.setenv("TONNAGE_POOL_POD_SECURITY", "privileged")
    assert settings_of(command) == wanted
