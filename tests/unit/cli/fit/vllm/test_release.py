"""The release of a version, an image or a date."""

import pytest

from tonnage.cli.fit.vllm.release import resolve_release

MEANT = {
    "0.11.0": "0.11.0",
    "v0.32.0": "0.32.0",
    "0.11.0 (assumed)": "0.11.0",
    "0.26.1rc1.dev156+g0eec856cc.d20260731": "0.26.1",
    "0.28.0+rocm723": "0.28.0",
    "0.6.4+ (main, 2024-12-13)": "0.6.4",
    "0.22 (2026-06-03)": "0.22",
    "vllm/vllm-openai:v0.22.0": "0.22.0",
    "vllm/vllm-openai-rocm:v0.17.0": "0.17.0",
    "2026-08-06": "0.26.0",
    "2026-08-26": "0.28.0",
    "0.2x (2026-07-08)": "0.24.0",
    "0.5.x ROCm (2024-08-29)": "0.5.5",
    "fork for SM89 (2026-08)": "0.26.0",
    "main, 2026-08-20": "0.28.0",
    "main, 2030-01-01": "0.33.0",
}


@pytest.mark.parametrize("text", MEANT)
def test_the_text_resolves_to_a_release(text: str) -> None:
    release = resolve_release(text)
    assert release is not None
    assert release.version == MEANT[text]


@pytest.mark.parametrize(
    "text",
    ["", "main", "nightly", "vllm/vllm-openai-rocm:nightly-09663abde0f5", "2026-13-01", "x" * 5000],
)
def test_a_text_without_a_release_resolves_to_none(text: str) -> None:
    assert resolve_release(text) is None


def test_a_date_has_a_note_and_a_version_has_none() -> None:
    by_day, by_version = resolve_release("2026-08-06"), resolve_release("0.26.0")
    assert by_day is not None
    assert by_version is not None
    assert "2026-08-06" in (by_day.note or "")
    assert by_version.note is None
