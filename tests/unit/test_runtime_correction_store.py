"""The ConfigMap of corrections: lessons are written once, edits count, and a bad edit harms no
other entry."""

from datetime import date

import pytest
import yaml

from tonnage.fit.correction_entries import MAX_ENTRIES, entry_name, read_entries, write_entry
from tonnage.fit.corrections import CorrectionKey, MemoryCorrection, Origin, ServedModel
from tonnage.kube.protocol import ConflictError, ForbiddenError, NotFoundError
from tonnage.runtime.correction_store import CorrectionStore

ACCELERATORS = {"mi300x", "h100-sxm-80gb"}
SERVED = ServedModel("LlamaForCausalLM-32x4096-8.0B", "bfloat16", "auto", "0.32.0")
KEY = CorrectionKey(SERVED, "mi300x")


def lesson(extra=1000, of="chat/llama", key=KEY, day=22, origin=Origin.MEASUREMENT):
    return MemoryCorrection(key, extra, origin, of, date(2026, 11, day))


NAME = entry_name(lesson())


def split(tensor):
    return CorrectionKey(SERVED, "mi300x", tensor)


class OneConfigMap:
    """A ConfigMap as an API server keeps it, with what was written."""

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
            raise ConflictError("it is another one by now")
        self.edit(entries)
        self.writes.append(entries)
        return await self.read()

    def edit(self, entries):
        """What anybody writes."""
        merged = {**(self.data or {}), **entries}
        self.data = {name: text for name, text in merged.items() if text is not None}
        self.version += 1


class Told(list):
    async def record(self, regarding, warning, reason, note, action):
        self.append(note)


def made(data=None):
    config_map, told = OneConfigMap(data), Told()
    return CorrectionStore(config_map, told, ACCELERATORS), config_map, told


def counting(store, namespace="chat"):
    return store.known().counting_in(namespace)


def stored(config_map):
    return read_entries(config_map.data, ACCELERATORS).corrections


async def test_a_lesson_makes_the_config_map_and_is_found_by_the_next_process():
    store, config_map, _ = made()
    await store.refresh()
    await store.learn(lesson())
    assert config_map.data == {NAME: write_entry(lesson())}
    next_store = CorrectionStore(config_map, Told(), ACCELERATORS)
    await next_store.refresh()
    assert next_store.known() == store.known()
    assert counting(next_store).find(KEY) == lesson()


async def test_what_is_known_is_not_written_again():
    store, config_map, _ = made()
    for _ in range(3):
        await store.refresh()
        await store.learn(lesson())
        await store.learn(lesson(of="chat/other", extra=1))
    assert len(config_map.writes) == 1


async def test_a_lesson_changes_no_other_entry():
    store, config_map, _ = made({"notes": "not an entry", "b": write_entry(lesson(key=split(2)))})
    before = dict(config_map.data)
    await store.refresh()
    await store.learn(lesson())
    assert config_map.writes == [{NAME: write_entry(lesson())}]
    assert config_map.data == {**before, NAME: write_entry(lesson())}


async def test_an_edit_counts_from_the_next_look_on():
    store, config_map, _ = made()
    await store.refresh()
    await store.learn(lesson())
    config_map.edit({NAME: write_entry(lesson(7, origin=Origin.PERSON))})
    await store.refresh()
    assert counting(store).find(KEY).extra_bytes == 7
    config_map.edit({NAME: None})
    await store.refresh()
    assert store.known().entries == ()


async def test_a_lesson_goes_into_what_somebody_has_changed_meanwhile():
    store, config_map, _ = made({})
    await store.refresh()
    config_map.edit({"theirs": write_entry(lesson(5, key=split(2)))})
    await store.learn(lesson())
    assert {found.extra_bytes for found in stored(config_map).entries} == {5, 1000}
    assert counting(store).find(split(2)).extra_bytes == 5


async def test_a_bad_edit_keeps_the_last_good_value_and_is_told_once():
    store, config_map, told = made({"mine": write_entry(lesson())})
    await store.refresh()
    bad = yaml.safe_load(write_entry(lesson())) | {"extraBytes": "lots"}
    config_map.edit({"mine": yaml.safe_dump(bad), "words": "just words"})
    for _ in range(3):
        await store.refresh()
    assert counting(store).find(KEY) == lesson()
    assert store.invalid == 2
    assert len(told) == 2
    assert "key mine: entry.extraBytes" in told[0]
    assert "its last good value counts" in told[0]
    assert "it is left out" in told[1]
    config_map.edit({"mine": write_entry(lesson(3)), "words": None})
    await store.refresh()
    assert (store.invalid, counting(store).find(KEY).extra_bytes) == (0, 3)


async def test_no_lesson_goes_over_what_its_writer_has_to_mend():
    store, config_map, _ = made({NAME: "just words"})
    await store.refresh()
    await store.learn(lesson())
    assert config_map.data == {NAME: "just words"}
    assert counting(store).find(KEY) == lesson()


@pytest.mark.parametrize("refusal", [ForbiddenError("no right"), NotFoundError("no namespace")])
async def test_what_cannot_be_written_is_known_all_the_same_and_written_later(refusal, caplog):
    store, config_map, _ = made()
    config_map.refusals = [refusal, refusal]
    await store.refresh()
    await store.learn(lesson())
    await store.refresh()
    assert counting(store).find(KEY) == lesson()
    assert config_map.data is None
    await store.refresh()
    assert stored(config_map).counting_in("chat").find(KEY) == lesson()


async def test_while_it_cannot_be_read_what_was_known_still_is():
    store, config_map, _ = made({"mine": write_entry(lesson())})
    assert not store.has_read
    await store.refresh()

    async def refuse():
        raise ForbiddenError("no right")

    config_map.read = refuse
    await store.refresh()
    assert counting(store).find(KEY) == lesson()


async def test_each_namespace_learns_for_itself_in_an_entry_of_its_own():
    store, config_map, _ = made()
    await store.refresh()
    await store.learn(lesson(1000))
    await store.learn(lesson(5, of="search/llama"))
    assert counting(store).find(KEY).extra_bytes == 1000
    assert counting(store, "search").find(KEY).extra_bytes == 5
    assert counting(store, "elsewhere").find(KEY) is None
    assert len(config_map.data) == 2
    after_restart = CorrectionStore(config_map, Told(), ACCELERATORS)
    await after_restart.refresh()
    assert set(after_restart.known().entries) == set(store.known().entries)


async def test_an_entry_of_before_namespaces_is_its_teachers_and_keeps_its_name():
    store, config_map, _ = made({"mi300x.tp1.Llama": write_entry(lesson(7))})
    await store.refresh()
    assert counting(store, "search").find(KEY) is None
    await store.learn(lesson(1000))
    assert config_map.data == {"mi300x.tp1.Llama": write_entry(lesson(1000))}


async def test_nobody_pushes_out_the_lessons_of_others():
    mine = {"mine": lesson(1, of="search/llama", key=split(1001), day=1)}
    theirs = {f"t{n:03}": lesson(n, key=split(n), day=2) for n in range(1, MAX_ENTRIES)}
    store, config_map, _ = made({name: write_entry(one) for name, one in (mine | theirs).items()})
    await store.refresh()
    await store.learn(lesson(1, key=split(1000), day=3))
    assert "mine" in config_map.data
    assert "t001" not in config_map.data


async def test_the_oldest_lesson_makes_room_and_what_a_person_wrote_stays():
    persons = {
        f"p{n}": lesson(n, key=split(n), origin=Origin.PERSON) for n in range(2, MAX_ENTRIES)
    }
    old = lesson(1, key=split(1000), day=1)
    data = {"old": old, "new": lesson(1, key=split(1001), day=2), **persons}
    store, config_map, _ = made({name: write_entry(found) for name, found in data.items()})
    await store.refresh()
    await store.learn(lesson())
    assert config_map.writes == [{"old": None, NAME: write_entry(lesson())}]
