"""Measurements in other namespaces do not change the corrections of a namespace."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tonnage.fit.calibration.corrections import (
    CorrectionKey,
    KnownCorrections,
    MemoryCorrection,
    Origin,
    ServedModel,
)

SERVED = ServedModel("LlamaForCausalLM-32x4096-8.0B", "bfloat16", "auto", "0.32.0")
KEYS = [CorrectionKey(SERVED, "mi300x", tensor) for tensor in (1, 2)]
MINE = "chat"

extra_bytes = st.integers(-3, 3)
keys = st.sampled_from(KEYS)
correction_registry = st.builds(
    MemoryCorrection,
    keys,
    extra_bytes,
    st.sampled_from([Origin.MEASUREMENT, Origin.FAILURE]),
    st.sampled_from([f"{MINE}/a", f"{MINE}/b", "chat-2/a", "search/a", "search/b"]),
)
edits = st.one_of(
    st.builds(MemoryCorrection, keys, extra_bytes, st.just(Origin.PERSON), st.none()),
    st.builds(MemoryCorrection, keys, extra_bytes, st.just(Origin.MEASUREMENT), st.none()),
)
by_hand = st.lists(edits, max_size=2, unique_by=lambda one: one.key).map(tuple)


@given(by_hand, st.lists(correction_registry, max_size=12))
def test_corrections_of_other_namespaces_change_nothing(
    written: tuple[MemoryCorrection, ...], measured: Sequence[MemoryCorrection]
) -> None:
    both = KnownCorrections(written).learn_all(measured)
    mine = KnownCorrections(written).learn_all(one for one in measured if one.namespace == MINE)
    for key in KEYS:
        assert both.counting_in(MINE).find(key) == mine.counting_in(MINE).find(key)


@given(by_hand, st.lists(correction_registry, max_size=12))
def test_entries_of_users_stay_and_each_subject_has_one_entry(
    written: tuple[MemoryCorrection, ...], measured: Sequence[MemoryCorrection]
) -> None:
    known = KnownCorrections(written).learn_all(measured)
    assert set(written) <= set(known.entries)
    subjects = [(one.key, one.namespace) for one in known.entries]
    assert len(subjects) == len(set(subjects))
    assert known.learn_all(known.entries) == known
