"""Every link of every page leads somewhere, and every file that a page names is there."""

import re
from xml.etree import ElementTree

import pytest

from tests.support.pages.markdown_pages import ROOT, pages, parse_page, read_page
from tests.support.pages.page_commands import complaints_about_words, missing_files

OURS = ROOT / "docs" / "page.md"
PACKAGE = ROOT / "operator" / "tonnage"
RECORDS = ROOT / "docs" / "adr"


def wrong_links(page):
    for link in page.links:
        if re.match(r"[a-z]+:", link.text):
            continue
        target, _, anchor = link.text.partition("#")
        path = (page.path.parent / target).resolve() if target else page.path
        if target and not path.exists():
            yield f"{page.name}:{link.line}: {link.text}: {target} does not exist"
        elif not path.is_relative_to(ROOT):
            yield f"{page.name}:{link.line}: {link.text} leads out of the repository"
        elif anchor and path.suffix == ".md":
            anchors = (page if path == page.path else read_page(path)).anchors
            if anchor not in anchors:
                yield f"{page.name}:{link.line}: #{anchor}: expected one of {sorted(anchors)}"


def wrong_words(page):
    for word in page.code:
        for complaint in complaints_about_words(word.text, page.made):
            yield f"{page.name}:{word.line}: `{word.text}`: {complaint}"


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_has_an_existing_target(path):
    assert list(wrong_links(read_page(path))) == []


# A decision record tells of its day; what it names may have moved since.
@pytest.mark.parametrize(
    "path",
    [path for path in pages() if path.parent != RECORDS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_command_option_and_file_in_a_sentence_exists(path):
    assert list(wrong_words(read_page(path))) == []


def test_the_map_names_existing_modules():
    page = read_page(ROOT / "docs" / "architecture.md")
    packages = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    named = {word.text for word in page.code if word.text.split("/")[0] in packages}
    assert len(named) > 20
    assert [
        name
        for name in sorted(named)
        if "{" not in name and not (PACKAGE / name).exists() and not (ROOT / name).exists()
    ] == []


def test_the_picture_of_the_pipeline_shows_existing_packages_and_steps():
    picture = ElementTree.parse(ROOT / "docs" / "pipeline.svg").getroot()
    texts = [element for element in picture.iter() if "name" in element.get("class", "").split()]
    shown = {name for text in texts for name in text.text.split(", ")} - {"Kubernetes API server"}
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    steps = {"observe", "plan", "execute", "report"}
    assert all((PACKAGE / "reconcile" / f"{step}.py").is_file() for step in steps)
    assert packages - {"cli", "kube", "reconcile", "telemetry"} == shown - steps


def test_the_index_links_every_page():
    index = read_page(ROOT / "docs" / "README.md")
    targets = {(index.path.parent / link.text).resolve() for link in index.links}
    assert set((ROOT / "docs").glob("*.md")) - targets == {index.path}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("[a](nowhere.md)", "nowhere.md does not exist"),
        ("[a](architecture.md#no-such-place)", "#no-such-place: expected one of"),
        ("# One\n[a](#two)", "#two: expected one of ['one']"),
        ("[a](../../outside.md)", "does not exist"),
        ("![a](nowhere.svg)", "nowhere.svg does not exist"),
    ],
)
def test_a_broken_link_is_reported(text, want):
    (complaint,) = wrong_links(parse_page(OURS, text))
    assert complaint.startswith("docs/page.md:")
    assert want in complaint


@pytest.mark.parametrize(
    "text",
    [
        "[a](architecture.md#the-pipeline) [b](adr/) [c](../LICENSE) [d](https://example.com/x#y)",
        "# What is there, and which is best?\n[a](#what-is-there-and-which-is-best)",
        "# `make` it so\n# Twice\n# Twice\n[a](#make-it-so) [b](#twice-1)",
        "`[a](nowhere.md)`\n\n```\n[a](nowhere.md)\n```",
    ],
)
def test_a_valid_link_is_not_reported(text):
    assert list(wrong_links(parse_page(OURS, text))) == []


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("`make sail`", "make has no target sail"),
        ("`tonnage sail`", "tonnage sail is no subcommand"),
        ("`kubectl tonnage plan --hurry`", "tonnage plan has no option --hurry"),
        ("`manifests/nowhere.yaml`", "manifests/nowhere.yaml is not in this repository"),
    ],
)
def test_a_word_that_names_a_missing_thing_is_reported(text, want):
    (complaint,) = wrong_words(parse_page(OURS, text))
    assert want in complaint


def test_a_file_that_the_page_creates_may_be_named():
    page = "In `docs/new.yaml`:\n\n```yaml\na: 1\n```\n\nThen `docs/new.yaml` and `docs/old.yaml`."
    (complaint,) = wrong_words(parse_page(OURS, page))
    assert complaint.endswith("docs/old.yaml is not in this repository")


def test_words_that_are_no_paths_of_this_repository_are_ignored():
    words = [
        "infd/llama-70b",
        "docs/*.md",
        "docs/FILE",
        "a/b",
        "crds",
        "$HOME/docs/x",
        "docs/...",
        "--set=a/b",
    ]
    assert list(missing_files(words)) == []
