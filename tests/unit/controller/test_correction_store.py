"""The ConfigMap of corrections: each is written once, edits apply, and an invalid edit affects no
other entry."""

from datetime import date

import pytest
import yaml

from tonnage.controller.correction_store import CorrectionStore
from tonnage.fit.calibration.corrections import CorrectionKey, MemoryCorrection, Origin, ServedModel
from tonnage.fit.calibration.entries import MAX_ENTRIES, entry_name, read_entries, write_entry
from tonnage.kube.protocol import ConflictError, ForbiddenError, NotFoundError

ACCELERATORS = {"mi300x", "h100-sxm-80gb"}
SERVED = ServedModel("LlamaForCausalLM-32x4096-8.0B", "bfloat16", "auto", "0.32.0")
KEY = CorrectionKey(SERVED, "mi300x")


def correction(extra=1000, of="chat/llama", key=KEY, day=22, origin=Origin.MEASUREMENT):
    return MemoryCorrection(key, extra, origin, of, date(2026, 11, day))


NAME = entry_name(correction())


def tensor_parallel(tensor):
    return CorrectionKey(SERVED, "mi300x", tensor)


class FakeConfigMap:
    """A ConfigMap as an API server stores it, with the writes to it."""

    def __init__(self, data=None):
        self.data = data
        self.version = 1
        self.writes = []
        self.refusals = []

    async def read(self):
        if self.data is None:
            raise NotFoundError("no such ConfigMap")
        metadata = {"name": "tonnage-corrections", "uid": "u", "resourceVersion": str(self.version)}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": dict(self.data),
        }

    async def change(self, seen, entries):
        if self.refusals:
            raise self.refusals.pop(0)
        version = seen["metadata"]["resourceVersion"] if seen else None
        if version != (None if self.data is None else str(self.version)):
            raise ConflictError("the resourceVersion is outdated")
        self.edit(entries)
        self.writes.append(entries)
        return await self.read()

    def edit(self, entries):
        """Write as a user does."""
        merged = {**(self.data or {}), **entries}
        self.data = {name: text for name, text in merged.items() if text is not None}
        self.version += 1


class Events(list):
    def record(self, regarding, warning, reason, note, action):
        self.append(note)


def build_store(data=None):
    config_map, events = FakeConfigMap(data), Events()
    return CorrectionStore(config_map, events.record, ACCELERATORS), config_map, events


def applied(store, namespace="chat"):
    return store.known().counting_in(namespace)


def stored(config_map):
    return read_entries(config_map.data, ACCELERATORS).corrections


async def test_a_correction_creates_the_config_map_and_the_next_process_reads_it():
    store, config_map, _ = build_store()
    await store.refresh()
    await store.add(correction())
    assert config_map.data == {NAME: write_entry(correction())}
    next_store = CorrectionStore(config_map, Events().record, ACCELERATORS)
    await next_store.refresh()
    assert next_store.known() == store.known()
    assert applied(next_store).find(KEY) == correction()


async def test_a_known_correction_is_not_written_again():
    store, config_map, _ = build_store()
    for _ in range(3):
        await store.refresh()
        await store.add(correction())
        await store.add(correction(of="chat/other", extra=1))
    assert len(config_map.writes) == 1


async def test_a_correction_changes_no_other_entry():
    store, config_map, _ = build_store(
        {"notes": "not an entry", "b": write_entry(correction(key=tensor_parallel(2)))}
    )
    before = dict(config_map.data)
    await store.refresh()
    await store.add(correction())
    assert config_map.writes == [{NAME: write_entry(correction())}]
    assert config_map.data == {**before, NAME: write_entry(correction())}


async def test_the_next_refresh_applies_an_edit():
    store, config_map, _ = build_store()
    await store.refresh()
    await store.add(correction())
    config_map.edit({NAME: write_entry(correction(7, origin=Origin.PERSON))})
    await store.refresh()
    assert applied(store).find(KEY).extra_bytes == 7
    config_map.edit({NAME: None})
    await store.refresh()
    assert store.known().entries == ()


async def test_a_correction_is_written_after_a_conflicting_edit():
    store, config_map, _ = build_store({})
    await store.refresh()
    config_map.edit({"theirs": write_entry(correction(5, key=tensor_parallel(2)))})
    await store.add(correction())
    assert {entry.extra_bytes for entry in stored(config_map).entries} == {5, 1000}
    assert applied(store).find(tensor_parallel(2)).extra_bytes == 5


async def test_an_invalid_edit_keeps_the_last_valid_value_and_is_reported_once():
    store, config_map, events = build_store({"mine": write_entry(correction())})
    await store.refresh()
    bad = yaml.safe_load(write_entry(correction())) | {"extraBytes": "lots"}
    config_map.edit({"mine": yaml.safe_dump(bad), "words": "just words"})
    for _ in range(3):
        await store.refresh()
    assert applied(store).find(KEY) == correction()
    assert store.invalid == 2
    assert len(events) == 2
    assert "key mine: entry.extraBytes" in events[0]
    assert "using its last valid value" in events[0]
    assert "ignoring it" in events[1]
    config_map.edit({"mine": write_entry(correction(3)), "words": None})
    await store.refresh()
    assert (store.invalid, applied(store).find(KEY).extra_bytes) == (0, 3)


async def test_a_correction_never_overwrites_an_invalid_entry():
    store, config_map, _ = build_store({NAME: "just words"})
    await store.refresh()
    await store.add(correction())
    assert config_map.data == {NAME: "just words"}
    assert applied(store).find(KEY) == correction()


@pytest.mark.parametrize("refusal", [ForbiddenError("no right"), NotFoundError("no namespace")])
async def test_a_correction_that_cannot_be_written_applies_and_is_written_later(refusal, caplog):
    store, config_map, _ = build_store()
    config_map.refusals = [refusal, refusal]
    await store.refresh()
    await store.add(correction())
    await store.refresh()
    assert applied(store).find(KEY) == correction()
    assert config_map.data is None
    await store.refresh()
    assert stored(config_map).counting_in("chat").find(KEY) == correction()


async def test_known_corrections_stay_while_the_config_map_cannot_be_read():
    store, config_map, _ = build_store({"mine": write_entry(correction())})
    assert not store.has_read
    await store.refresh()

    async def refuse():
        raise ForbiddenError("no right")

    config_map.read = refuse
    await store.refresh()
    assert applied(store).find(KEY) == correction()


async def test_each_namespace_has_its_own_entry_and_corrections():
    store, config_map, _ = build_store()
    await store.refresh()
    await store.add(correction(1000))
    await store.add(correction(5, of="search/llama"))
    assert applied(store).find(KEY).extra_bytes == 1000
    assert applied(store, "search").find(KEY).extra_bytes == 5
    assert applied(store, "elsewhere").find(KEY) is None
    assert len(config_map.data) == 2
    after_restart = CorrectionStore(config_map, Events().record, ACCELERATORS)
    await after_restart.refresh()
    assert set(after_restart.known().entries) == set(store.known().entries)


async def test_an_entry_without_namespace_in_its_name_keeps_its_name_and_namespace():
    store, config_map, _ = build_store({"mi300x.tp1.Llama": write_entry(correction(7))})
    await store.refresh()
    assert applied(store, "search").find(KEY) is None
    await store.add(correction(1000))
    assert config_map.data == {"mi300x.tp1.Llama": write_entry(correction(1000))}


async def test_no_namespace_displaces_the_corrections_of_others():
    mine = {"mine": correction(1, of="search/llama", key=tensor_parallel(1001), day=1)}
    theirs = {
        f"t{n:03}": correction(n, key=tensor_parallel(n), day=2) for n in range(1, MAX_ENTRIES)
    }
    store, config_map, _ = build_store(
        {name: write_entry(one) for name, one in (mine | theirs).items()}
    )
    await store.refresh()
    await store.add(correction(1, key=tensor_parallel(1000), day=3))
    assert "mine" in config_map.data
    assert "t001" not in config_map.data


async def test_the_oldest_correction_is_evicted_and_a_users_entry_stays():
    persons = {
        f"p{n}": correction(n, key=tensor_parallel(n), origin=Origin.PERSON)
        for n in range(2, MAX_ENTRIES)
    }
    old = correction(1, key=tensor_parallel(1000), day=1)
    data = {"old": old, "new": correction(1, key=tensor_parallel(1001), day=2), **persons}
    store, config_map, _ = build_store({name: write_entry(entry) for name, entry in data.items()})
    await store.refresh()
    await store.add(correction())
    assert config_map.writes == [{"old": None, NAME: write_entry(correction())}]
