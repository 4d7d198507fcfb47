"""The ConfigMap of corrections on a real API server: entries of people and the operator live side
by side."""

from collections.abc import AsyncIterator
from datetime import date

import pytest

from e2e.harness.admin import Admin
from e2e.harness.stack import Stack
from tonnage.api.names import CORRECTIONS_CONFIG_MAP
from tonnage.controller.correction_store import CorrectionStore
from tonnage.fit.calibration.corrections import CorrectionKey, MemoryCorrection, Origin, ServedModel
from tonnage.fit.calibration.entries import entry_name, read_entries, write_entry
from tonnage.kube.connection import connect
from tonnage.kube.protocol import ConflictError
from tonnage.kube.single_fields import ConfigMapEntries
from tonnage.kube.transport import Transport

ACCELERATORS = {"mi300x"}
SERVED = ServedModel("LlamaForCausalLM-32x4096-8.0B", "bfloat16", "auto", "0.32.0")


def correction(tensor: int, extra: int, origin: Origin = Origin.MEASUREMENT) -> MemoryCorrection:
    key = CorrectionKey(SERVED, "mi300x", tensor)
    return MemoryCorrection(key, extra, origin, "chat/llama", date(2026, 11, 22))


class RecordedNotes(list[str]):
    def record(self, regarding: object, warning: bool, reason: str, note: str, _: str) -> None:
        self.append(note)


@pytest.fixture
async def api(control_plane: Stack, namespace: str) -> AsyncIterator[ConfigMapEntries]:
    async with connect(str(control_plane.kubeconfig)) as connection:
        transport = Transport(connection.client, lambda *_: None)
        yield ConfigMapEntries(transport, namespace, CORRECTIONS_CONFIG_MAP, lambda: 30.0)


def data(admin: Admin) -> dict[str, str]:
    stored = admin.get("configmaps", CORRECTIONS_CONFIG_MAP)
    assert stored is not None
    entries: dict[str, str] = stored["data"]
    return entries


def apply(admin: Admin, **entries: str) -> None:
    """What a team applies from Git."""
    metadata = {"name": CORRECTIONS_CONFIG_MAP}
    admin.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": entries})


async def test_edits_of_users_and_corrections_of_the_operator_keep_each_other(
    api: ConfigMapEntries, admin: Admin
) -> None:
    store = CorrectionStore(api, RecordedNotes().record, ACCELERATORS)
    await store.refresh()
    await store.add(correction(1, 100))
    ours = write_entry(correction(2, 7, Origin.PERSON))
    apply(admin, ours=ours)
    await store.add(correction(4, 400))  # the store has not seen that: it reads again, and writes
    apply(admin, ours=ours)
    written = {
        entry_name(entry): write_entry(entry) for entry in (correction(1, 100), correction(4, 400))
    }
    assert data(admin) == {"ours": ours, **written}
    assert {entry.extra_bytes for entry in store.known().entries} == {7, 100, 400}
    apply(admin)
    assert data(admin) == written, "a team takes away what it applied"


async def test_an_invalid_edit_is_reported_and_the_last_valid_state_is_kept(
    api: ConfigMapEntries, admin: Admin
) -> None:
    notes = RecordedNotes()
    apply(admin, ours=write_entry(correction(2, 7, Origin.PERSON)))
    store = CorrectionStore(api, notes.record, ACCELERATORS)
    await store.refresh()
    apply(admin, ours="extraBytes: lots\n")
    await store.refresh()
    await store.add(correction(1, 100))
    assert {entry.extra_bytes for entry in store.known().entries} == {7, 100}
    assert store.invalid == 1
    assert data(admin)["ours"] == "extraBytes: lots\n"
    assert [note.partition(":")[0] for note in notes] == [
        f"ConfigMap {CORRECTIONS_CONFIG_MAP}, key ours"
    ]
    assert read_entries(data(admin), ACCELERATORS).problems.keys() == {"ours"}


async def test_concurrent_creation_is_a_conflict(api: ConfigMapEntries) -> None:
    await api.change(None, {"a": "1"})
    with pytest.raises(ConflictError):
        await api.change(None, {"b": "2"})
    seen = await api.read()
    await api.change(seen, {"b": "2"})
    with pytest.raises(ConflictError):
        await api.change(seen, {"a": None})
