"""Adding rules to spec.placement.allow never refuses a combination that was allowed."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.engines.subjects import (
    BLOCK_FP8,
    CATALOG,
    FP8,
    GPTQ,
    LATENT,
    MXFP4,
    MXFP8,
    NVFP4,
    QUARK_FP8,
    SPARSE,
    W4A8,
    W8A8,
    Example,
)
from tonnage.fit.legality.compatibility import judge_compatibility

RULES = [rule.name for rule in CATALOG.rules]

examples = st.builds(
    Example,
    on=st.sampled_from(sorted(CATALOG.accelerators)),
    model=st.sampled_from([{}, LATENT, SPARSE]),
    stored=st.sampled_from(
        [None, FP8, BLOCK_FP8, QUARK_FP8, NVFP4, MXFP4, MXFP8, GPTQ, W8A8, W4A8]
        + [{"quant_method": name} for name in ("gguf", "novel", "fp_quant", "experts_int8")]
    ),
    version=st.sampled_from(["0.9.2", "0.14.0", "0.19.0", "0.27.1", "0.32.0", "2.0.0"]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8", "fp8_e5m2", "nvfp4"]),
    quantization=st.sampled_from(["auto", "fp8", "awq", "gptq_marlin", "mxfp8"]),
    architecture=st.sampled_from([None, "QWenLMHeadModel", "NovelForCausalLM"]),
)


@given(
    example=examples, allow=st.sets(st.sampled_from(RULES)), more=st.sets(st.sampled_from(RULES))
)
def test_allowing_more_never_refuses_more(
    example: Example, allow: set[str], more: set[str]
) -> None:
    given_up = (example.checkpoint, example.accelerator, example.options)
    before = judge_compatibility(*given_up, allow, CATALOG)
    after = judge_compatibility(*given_up, allow | more, CATALOG)
    assert set(after.refusals) <= set(before.refusals)
    assert set(before.overridden) <= set(after.overridden)
    assert (before.warnings, before.settings) == (after.warnings, after.settings)


@given(example=examples)
def test_allowing_everything_refuses_nothing(example: Example) -> None:
    judged = judge_compatibility(
        example.checkpoint, example.accelerator, example.options, RULES, CATALOG
    )
    assert judged.refusals == ()
    assert all(refusal.rule in RULES for refusal in judged.overridden)
