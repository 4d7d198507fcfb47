"""The rules of the KV cache by release."""

import pytest

from tonnage.catalog.vllm.kv_cache import CacheDtype, LocalLayers, StatePrefixes, kv_cache_rules


@pytest.mark.parametrize(
    ("version", "want"),
    [
        ("0.6.3.post1", LocalLayers.NONE),
        ("v0.8.2", LocalLayers.NONE),
        ("0.8.3", LocalLayers.ALIKE),
        ("v0.9.0.1", LocalLayers.GROUPED),
        ("0.33.0", LocalLayers.GROUPED),
    ],
)
def test_a_release_behaves_like_the_last_one_that_changed_something(
    version: str, want: LocalLayers
) -> None:
    assert kv_cache_rules(version).local_layers is want


def test_unchanged_fields_stay() -> None:
    rules = kv_cache_rules("0.29.1")
    assert rules.null_blocks == 1
    assert rules.state_prefixes is StatePrefixes.DEFAULT
    assert rules.group_slack == 1.5


def test_an_invalid_version_is_refused() -> None:
    with pytest.raises(ValueError, match="latest"):
        kv_cache_rules("latest")


def test_an_architecture_that_is_not_listed_has_the_usual_blocks() -> None:
    rules = kv_cache_rules("0.32.0")
    assert rules.block_tokens("gfx1100") == rules.block_tokens("default")
    assert rules.block_tokens("sm_90").quantized_latent == 64


@pytest.mark.parametrize(
    ("dtype", "want"),
    [
        (CacheDtype(16), 256),
        (CacheDtype(8), 128),
        (CacheDtype(8, scale_bytes=4), 132),
        (CacheDtype(4, group=16), 72),
    ],
)
def test_a_row_has_its_elements_and_their_scales(dtype: CacheDtype, want: int) -> None:
    assert dtype.row_bytes(128) == want


def test_no_element_takes_nothing() -> None:
    assert kv_cache_rules("0.32.0").dtypes["nvfp4"].row_bytes(1) == 1
