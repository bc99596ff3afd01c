"""Figures in README and docs: a command prints each, and pages that repeat one agree."""

import importlib
import json
import pkgutil
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import typer

from varprop.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LISTED = tomllib.loads((ROOT / "docs/sources.toml").read_text("utf-8"))
FIGURE = re.compile(r"(?<![\w.])\d+(?:,\d{3})*\.\d+(?![\w.])")
ENOUGH = 4  # decimal numbers that make a table, or an output, one of figures


def blocks(text):
    """Yield (heading, block) of every table and of every plain fenced output with figures."""
    heading, lines, at = "", text.split("\n"), 0
    while at < len(lines):
        if found := re.match(r"#+ (.*)", lines[at]):
            heading = found[1]
        end = at + 1
        if lines[at].startswith("```"):
            while not lines[end].startswith("```"):
                end += 1
            block = lines[at + 1 : end] if lines[at].strip() == "```" else []
            end += 1
        elif lines[at].startswith("|"):
            while lines[end : end + 1] and lines[end].startswith("|"):
                end += 1
            block = lines[at:end]
        else:
            block = []
        if len(FIGURE.findall("\n".join(block))) >= ENOUGH:
            yield heading, block
        at = end


def test_every_table_of_figures_is_listed_with_its_command():
    found = {}
    for page in PAGES:
        headings = {heading for heading, _ in blocks(page.read_text("utf-8"))}
        if headings:
            found[str(page.relative_to(ROOT))] = headings
    assert found == {page: set(entries) for page, entries in LISTED["figures"].items()}


def test_every_command_is_there():
    made = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    known = typer.main.get_command(app).commands
    commands = [c for page in LISTED["figures"].values() for each in page.values() for c in each]
    assert commands
    for command in commands:
        kind, name = command.split()
        assert {
            "python": (ROOT / name).is_file(),
            "make": name in made,
            "varprop": name in known,
        }[kind], command


def test_outputs_of_examples_are_what_the_example_prints():
    checked = 0
    for name, entries in LISTED["figures"].items():
        for heading, block in blocks((ROOT / name).read_text("utf-8")):
            scripts = [c.split()[1] for c in entries[heading] if "examples/" in c]
            if not scripts or block[0].startswith("|"):
                continue
            source = "".join((ROOT / script).read_text("utf-8") for script in scripts)
            words = re.findall(r"[A-Za-z]{3,}", block[0])
            missing = [word for word in words if word not in source]
            assert not missing, (name, heading, missing)
            checked += 1
    assert checked >= 5


@pytest.mark.parametrize("quote", LISTED["quotes"], ids=lambda q: q["says"])
def test_figures_that_are_said_again_agree(quote):
    page, source = (
        re.sub(r"\s+", " ", (ROOT / quote[name]).read_text("utf-8")) for name in ("page", "source")
    )
    assert quote["says"] in page
    for held in quote["holds"]:
        assert held in source


def test_what_the_page_calls_public_is_what_is_documented():
    """Every name of the public modules is on an API page, and every name there is one of theirs."""
    page = (ROOT / "docs/stability.md").read_text("utf-8")
    table = page[page.index("## Public") : page.index("That is:")]
    modules = re.findall(r"`(varprop[.\w]*)`", "".join(re.findall(r"^\|(.*?)\|", table, re.M)))
    assert len(modules) > 12
    text = "\n".join(page.read_text("utf-8") for page in ROOT.glob("docs/api/*.md"))
    found = re.findall(r"^\.\. auto(\w+):: (varprop[.\w]+)$", text, re.M)
    moving = ("varprop.bench.", "varprop.baselines.")
    public, documented = {}, {}  # by what they are, since a module has several names
    for name in modules:
        module = pkgutil.resolve_name(name)
        for own in module.__all__:
            public[id(getattr(module, own))] = f"{name}.{own}"
        public[id(module)] = name
    for kind, name in found:
        if not name.startswith(moving):
            thing = pkgutil.resolve_name(name)
            documented[id(thing)] = name
            for own in thing.__all__ if kind == "module" else ():
                documented[id(getattr(thing, own))] = f"{name}.{own}"
    assert not {name for key, name in documented.items() if key not in public}
    missing = {
        name
        for key, name in public.items()
        if key not in documented and not isinstance(pkgutil.resolve_name(name), ModuleType)
    }
    assert not missing


def test_versions_agree_and_are_in_the_changelog():
    version = importlib.import_module("varprop").__version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.*)$", citation, re.M) == [version]
    (released,) = re.findall(r"^date-released: (.*)$", citation, re.M)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(r"^## \[\d.*$", changelog, re.M)
    assert heading[0] == f"## [{version}] - {released}"


def test_notebooks_are_kept_without_outputs():
    """They are run when the site is built: what is shown is what the code gives."""
    notebooks = list((ROOT / "docs").rglob("*.ipynb"))
    assert notebooks
    for path in notebooks:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert len(code) > 3
        assert not any(cell["outputs"] or cell["execution_count"] for cell in code)


def rows_of_nine_sets(text):
    """Return the cells of a table's rows by data set."""
    names = "Boston|Concrete|Energy|Kin8nm|Naval|Power Plant|Protein|Wine|Yacht"
    rows = re.findall(rf"^\| ({names}) \| (.*) \|$", text, re.M)
    return {name: cells.split(" | ") for name, cells in rows}


def test_the_results_of_the_readme_are_those_of_the_comparison():
    """Cell by cell."""
    page = (ROOT / "docs/compared.md").read_text("utf-8")
    first = page[page.index("## Nine sets") : page.index("## Twelve other tables")]
    there = rows_of_nine_sets(first)
    rows = rows_of_nine_sets((ROOT / "README.md").read_text("utf-8"))
    assert rows.keys() == there.keys()
    assert len(rows) == 9
    for name, cells in rows.items():
        assert len(cells) > 3
        assert not set(cells) - set(there[name]), name
