"""Untrusted files become objects, or a one-line error that names the file and the position."""

import io
import json
import time

import pytest

from tonnage.cli.errors import InputError
from tonnage.cli.sources import documents
from tonnage.cli.sources.documents import load_documents, load_manifests

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}}


def write(tmp_path, text):
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("kind: Node\nmetadata: {name: a}\n", [("Node", "a")], id="one object"),
        pytest.param(
            "kind: A\n---\n---\nkind: B\n", [("A", ""), ("B", "")], id="an empty document"
        ),
        pytest.param(json.dumps(NODE), [("Node", "gpu-1")], id="JSON"),
        pytest.param('{kind: Node, metadata: {name: "a"}}', [("Node", "a")], id="flow style"),
        pytest.param(
            json.dumps({"kind": "List", "items": [NODE, NODE]}), [("Node", "gpu-1")] * 2, id="List"
        ),
        pytest.param(
            json.dumps({"kind": "NodeList", "items": [{"metadata": {"name": "a"}}]}),
            [("Node", "a")],
            id="a NodeList, whose items have no kind of their own",
        ),
        pytest.param(json.dumps({"kind": "List", "items": []}), [], id="an empty List"),
        pytest.param('{"kind": "PodList", "items": null}', [], id="a List of null"),
        pytest.param(
            json.dumps({"kind": "List", "items": [{"kind": "NodeList", "items": [NODE]}, NODE]}),
            [("Node", "gpu-1")] * 2,
            id="a List in a List",
        ),
        pytest.param(
            json.dumps(NODE, indent=2)
            + "\n"
            + json.dumps({"kind": "List", "items": [NODE]})
            + "\n",
            [("Node", "gpu-1")] * 2,
            id="JSON after JSON",
        ),
        pytest.param(
            "a: &x {b: 1}\nkind: K\nmetadata: {name: n, labels: *x}\n",
            [("K", "n")],
            id="an honest alias",
        ),
        pytest.param("\ufeffkind: A\n", [("A", "")], id="a byte order mark"),
        pytest.param("kind: A\r\n".encode("utf-16"), [("A", "")], id="UTF-16, as of PowerShell"),
    ],
)
def test_objects_are_loaded(tmp_path, text, want):
    loaded = load_documents(write(tmp_path, text))
    assert [(document.kind, document.name) for document in loaded] == want


def test_items_of_a_list_of_one_kind_have_its_version(tmp_path):
    pools = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "AcceleratorPoolList"}
    path = write(tmp_path, json.dumps({**pools, "items": [{"metadata": {"name": "a"}}]}))
    (document,) = load_documents(path)
    assert document.body["apiVersion"] == "tonnage.dev/v1alpha1"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "file.yaml is empty", id="empty"),
        pytest.param("---\n---\n", "file.yaml is empty", id="only separators"),
        pytest.param("a: b: c\n", "line 1, column 5: mapping values are not allowed", id="no YAML"),
        pytest.param(b"\xff\xfe\x00", "is neither UTF-8 nor UTF-16 text (byte 2)", id="half"),
        pytest.param(b"a: \xe9", "is neither UTF-8 nor UTF-16 text (byte 3)", id="Latin-1"),
        pytest.param("just words\n", "found 'just words'", id="a string"),
        pytest.param("[1, 2]", "found [1, 2]", id="a list"),
        pytest.param("a: !!python/name:os.system x", "could not determine a constructor", id="tag"),
        pytest.param("a: &x [*x]", "line 1: *x contains itself", id="a ring"),
        pytest.param("a: *nothing", "undefined alias", id="an alias of nothing"),
        pytest.param("[" * 200_000, "nested deeper than 100 levels", id="deep lists"),
        pytest.param('{"a":' * 200_000, "nested deeper than 100 levels", id="deep objects"),
        pytest.param(
            "a: " + "9" * 5000, "is not readable YAML", id="a number beyond Python's limit"
        ),
        pytest.param("? {a: 1}\n: 2\n", "found unhashable key", id="a mapping as a key"),
        pytest.param(
            '{"kind": "List", "items": [7]}', "items[0] is not an object: 7", id="a bad item"
        ),
        pytest.param(
            '{"kind": "NodeList", "items": 5}',
            "items of a NodeList is 5, expected a list",
            id="items that are no list",
        ),
        pytest.param('{"kind": "A"} {', "file.yaml, line 1, column", id="no JSON after JSON"),
        pytest.param("a: \x00", "file.yaml is not readable YAML", id="a control character"),
    ],
)
def test_an_invalid_file_is_a_one_line_error(tmp_path, text, want):
    with pytest.raises(InputError) as error:
        load_documents(write(tmp_path, text))
    assert want in str(error.value)
    assert "\n" not in str(error.value)
    assert "file.yaml" in str(error.value)


def test_aliases_that_expand_to_a_billion_values_are_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    started = time.process_time()
    with pytest.raises(InputError, match="expands to more than 10,000,000 values"):
        load_documents(write(tmp_path, "\n".join(lines)))
    assert time.process_time() - started < 60  # expanded, it takes hours


def test_a_file_beyond_the_limit_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_FILE_BYTES", 1024**2)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        load_documents(write(tmp_path, b"#" * (1024**2 + 1)))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("missing.yaml", "No such file or directory"),
        ("", "Is a directory"),
        ("nul\0byte", "is not the name of a file"),
    ],
)
def test_a_file_that_cannot_be_opened_is_named(tmp_path, name, want):
    with pytest.raises(InputError, match=want):
        load_documents(f"{tmp_path}/{name}")


def test_dates_stay_strings_as_in_kubernetes(tmp_path):
    path = write(
        tmp_path, "kind: Node\nmetadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}\n"
    )
    assert load_documents(path)[0].body["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"


def test_nulls_are_absent_as_the_api_server_stores_an_object(tmp_path):
    text = "kind: Node\nmetadata: {name: a, labels: null}\nspec: {taints: }\nstatus:\n"
    (document,) = load_documents(write(tmp_path, text))
    assert document.body == {"kind": "Node", "metadata": {"name": "a"}, "spec": {}}


def test_a_dash_reads_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"kind: A")))
    assert load_documents("-")[0].source == "standard input, A"


def test_the_source_names_file_kind_and_object(tmp_path):
    path = write(tmp_path, json.dumps(NODE))
    assert load_documents(path)[0].source == f"{path}, Node gpu-1"


def test_a_folder_loads_the_manifests_in_it(tmp_path):
    (tmp_path / "b.yml").write_text("kind: B\n")
    (tmp_path / "a.json").write_text('{"kind": "A"}')
    (tmp_path / "README.md").write_text("not an object")
    assert [document.kind for document in load_manifests(str(tmp_path))] == ["A", "B"]


def test_an_empty_name_is_not_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text('{"kind": "A"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="'' is not the name of a file"):
        load_manifests("")


def test_a_folder_without_manifests_is_a_mistake(tmp_path):
    with pytest.raises(InputError, match=r"holds no .json, .yaml, .yml file"):
        load_manifests(str(tmp_path))
