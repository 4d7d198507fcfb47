"""Every code block of every page can be used as it stands: commands, manifests, JSON, Python."""

import pytest

from tests.support.pages.markdown_pages import ROOT, Block, pages, read_page
from tests.support.pages.page_blocks import UNCHECKED, complaints
from tests.support.pages.shell_lines import typed_commands

# What a page shows on purpose although no rule here can follow it: (page, first line) and why.
ALLOWED: dict[tuple[str, str], str] = {}


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_code_block_is_valid(path):
    page = read_page(path)
    assert [
        f"{page.name}:{line}: {complaint}"
        for block in page.blocks
        if (page.name, block.text.partition("\n")[0]) not in ALLOWED
        for line, complaint in complaints(block, page.made)
    ] == []


def test_every_exception_is_still_needed():
    shown = {(page.name, block.text.partition("\n")[0])
             for page in map(read_page, pages()) for block in page.blocks}  # fmt: skip
    assert ALLOWED.keys() <= shown
    assert all(UNCHECKED.values())


INFERENCE = """\
apiVersion: tonnage.dev/v1alpha1
kind: InferenceDeployment
metadata: {name: llama}
spec:
  model: {source: {huggingFace: {repo: a/b}}}
  workload: {maxModelLen: 8192}
"""


@pytest.mark.parametrize(
    ("language", "text", "want_line", "want"),
    [
        ("console", "$ make sail\n", 7, "make has no target sail"),
        ("console", "output alone\n", 7, "a console shows what is typed after"),
        ("console", "$ echo 'open\n", 7, "no shell reads this"),
        ("console", "$ tonnage plan \\\n> --hurry\n", 7, "arguments are required"),
        ("console", "$ ls\n$ kubectl tonnage pools --hurry\n", 8, "unrecognized arguments"),
        ("console", "$ kubectl sail\n", 7, "kubectl sail: expected one of annotate"),
        ("console", "$ frobnicate x\n", 7, "frobnicate is no program that is known"),
        ("console", "$ kubectl apply -f manifests/no.yaml\n", 7, "manifests/no.yaml is not in"),
        ("sh", "ls | helm sail ./chart\n", 7, "helm sail: expected one of"),
        (
            "sh",
            "helm install a charts/tonnage --set sail=1\n",
            7,
            "charts/tonnage has no value sail",
        ),
        ("sh", "python -m e2e.sail up\n", 7, "there is no module e2e.sail"),
        ("sh", ".venv/bin/sail\n", 7, ".venv/bin/sail is not installed"),
        ("sh", "cat <<EOF | tonnage plan\nx: 1\nEOF\n", 7, "arguments are required"),
        ("yaml", "a: 1\n  b: 2\n", 8, "not YAML"),
        ("yaml", "kind: Pod\nmetadata: {name: a}\n", 7, "both apiVersion and kind"),
        ("yaml", "apiVersion: v1\nkind: Pod\n", 7, "Pod has no metadata.name"),
        ("yaml", INFERENCE + "  sail: 1\n", 7, "spec.sail: is not a field"),
        ("yaml", "spec: {placement: {allow: [A], sail: 1}}\n", 7, "placement.sail: Extra inputs"),
        ("yaml", INFERENCE.replace("alpha1", "beta9"), 7, "expected tonnage.dev/v1alpha1"),
        ("json", "{]\n", 7, "not json"),
        ("python", "def\n", 7, "not python"),
        ("cobol", "x\n", 7, "language 'cobol' is not known"),
        ("", "$ make test\n", 7, "must say that it is a `console`"),
    ],
)
def test_an_invalid_block_is_reported(language, text, want_line, want):
    line, complaint = next(complaints(Block(7, language, text)))
    assert want in complaint
    assert line == want_line


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("console", "$ A=1 make test PYTHON=python3  # all\noutput | of `make`\n"),
        ("console", "$ kubectl -n chat tonnage pools > out.txt 2>/dev/null && ls\n"),
        ("sh", f"kubectl apply -f - <<'EOF'\n{INFERENCE}EOF\n"),
        ("yaml", "a: 1\n---\nspec: {placement: {allow: [Nvfp4Emulated]}}\n"),
        ("json", '{"a": 1}\n{"a": 2}\n'),
    ],
)
def test_a_valid_block_is_not_reported(language, text):
    assert list(complaints(Block(7, language, text))) == []


def test_a_here_document_belongs_to_its_command():
    text = "$ kubectl apply -f - <<EOF\n> a: 1\n> EOF\n$ ls\n"
    applied, listed = typed_commands(text, 1, prompt=True)
    assert (applied.words, applied.given) == (("kubectl", "apply", "-f", "-"), "a: 1")
    assert (listed.words, listed.line) == (("ls",), 4)


def test_the_readme_says_where_the_image_comes_from_before_it_installs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert 0 < text.index("`make image`") < text.index("kubectl apply -k")
