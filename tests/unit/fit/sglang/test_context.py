"""The context that SGLang derives is that of its own Python in the records."""

from dataclasses import replace

import pytest

from accuracy.records import models
from accuracy.sglang import SGLangLayout, sglang_layouts
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.sglang.context import sglang_context_limit, sglang_too_long

DERIVED = {each.model: each for each in sglang_layouts() if each.given_context is None}


@pytest.mark.parametrize("layout", DERIVED.values(), ids=DERIVED)
def test_the_length_is_the_one_that_sglang_derived(layout: SGLangLayout) -> None:
    shape = parse_config(models()[layout.model].config)
    assert sglang_context_limit(shape) == layout.context_length
    assert sglang_too_long(shape, layout.context_length) is None
    message = sglang_too_long(shape, layout.context_length + 1)
    assert message is not None
    assert message.endswith("SGLang refuses to start")


def test_a_config_without_a_length_has_2048_tokens() -> None:
    shape = parse_config(models()[next(iter(DERIVED))].config)
    assert sglang_context_limit(replace(shape, default_context=None)) == 2048
