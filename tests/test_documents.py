"""Figures in README and docs: a command prints each, and pages that repeat one agree."""

import re
import tomllib
from pathlib import Path

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


def test_the_results_of_the_readme_are_those_of_the_reproduction():
    """Rounded, number by number."""
    columns = ["FAWN-ROPD", "FAWN-ROPD, 5 members", "FAWN-VI", "PBP"]
    page = (ROOT / "docs/reproduction.md").read_text("utf-8")
    first = page[page.index("## Table 1") : page.index("## Table 2")]
    row = r"^\| ([^|]+) \| ([^|]+) \| [^|]+ \| (?:ours|own) \| (-?[\d.]+)±([\d.]+) \|"
    there = {
        (data, method): (float(mean), float(error))
        for data, method, mean, error in re.findall(row, first, re.M)
    }
    text = (ROOT / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| ([\w ]+) \| -?[\d.]+ \| (.* ± .*) \|$", text, re.M)
    assert len(rows) == 9
    for data, cells in rows:
        for method, cell in zip(columns, cells.split("|"), strict=True):
            said = [float(part) for part in cell.split("±")]
            for quoted, known in zip(said, there[data, method], strict=True):
                assert abs(quoted - known) <= 0.0051, (data, method)
