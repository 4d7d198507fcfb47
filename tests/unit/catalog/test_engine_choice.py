"""Every rule that chooses an engine is about one that the operator has, and covers what it says."""

import pytest

from tests.support.engines.subjects import BLOCK_FP8, CATALOG, FP8, MXFP4, Example
from tonnage.catalog.engine_choice import EngineRule, load_engine_rules
from tonnage.catalog.sglang import load_sglang_memory
from tonnage.catalog.sglang_server import load_sglang_server
from tonnage.fit.legality.engine_choice import choose_by_rules, explain_missing_class

RULES = {rule.name: rule for rule in load_engine_rules().rules}
PLANNED = {"vllm": "0.32.0", "sglang": load_sglang_server().version}
H100, L40S = "h100-sxm-80gb", "l40s"
EXAMPLES = {
    "DeepSeekV3InFp8": (
        [
            Example("mi300x", stored=BLOCK_FP8, architecture="DeepseekV3ForCausalLM"),
            Example(H100, stored=FP8, architecture="DeepseekV3ForCausalLM"),
        ],
        [
            Example("mi300x", architecture="DeepseekV3ForCausalLM"),
            Example("mi300x", stored=MXFP4, architecture="DeepseekV3ForCausalLM"),
            Example("mi355x", stored=BLOCK_FP8, architecture="DeepseekV3ForCausalLM"),
            Example("mi300x", stored=BLOCK_FP8),
        ],
    ),
    "Glm5InFp8": (
        [Example("mi300x", stored=FP8, architecture="GlmMoeDsaForCausalLM")],
        [Example(L40S, stored=FP8, architecture="GlmMoeDsaForCausalLM")],
    ),
}
"""Examples that each rule covers, and such that no rule does."""


def choose(example: Example, releases: dict[str, str] | None = None) -> tuple[str, str] | None:
    shape, options = example.checkpoint.shape, example.options
    return choose_by_rules(shape, example.accelerator, options, releases or PLANNED, CATALOG)


def test_there_are_examples_for_every_rule() -> None:
    assert EXAMPLES.keys() == RULES.keys()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_covers_its_examples_and_nothing_next_to_them(name: str) -> None:
    covered, others = EXAMPLES[name]
    for example in covered:
        chosen = choose(example)
        assert chosen is not None
        assert chosen[0] == RULES[name].engine
        assert chosen[1].endswith(f"(rule {name})")
        assert "{" not in chosen[1]
    assert [choose(example) for example in others] == [None] * len(others)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_a_rule_is_about_classes_releases_and_devices_that_its_engine_has(rule: EngineRule) -> None:
    rules = load_engine_rules()
    assert rule.covers_release(PLANNED[rule.engine])
    assert rule.when.architectures
    assert all(rules.has_class(rule.engine, name) for name in rule.when.architectures)
    assert rule.engine == "sglang"
    assert set(rule.when.archs or ()) <= load_sglang_memory().architectures


def test_a_rule_counts_for_the_releases_that_it_names() -> None:
    example = EXAMPLES["DeepSeekV3InFp8"][0][0]
    assert choose(example, {"sglang": "0.5.12"}) is not None
    assert choose(example, {"sglang": "0.5.11"}) is None
    assert choose(example, {"vllm": "0.32.0"}) is None
    until = RULES["DeepSeekV3InFp8"].model_copy(update={"until": "0.6.0"})
    assert [until.covers_release(one) for one in ("0.6.0", "0.6.1")] == [True, False]


def test_a_class_without_code_is_named() -> None:
    shape = Example("mi300x", architecture="UnheardOfForCausalLM").checkpoint.shape
    missing = explain_missing_class("sglang", "0.5.23", shape)
    assert missing == "sglang 0.5.23 has no implementation of UnheardOfForCausalLM"
    assert explain_missing_class("vllm", "0.32.0", shape) is None
