"""Install varprop into environments of their own, and run `varprop demo` there.

    python tools/clean_install.py                    # the checkout, with the newest versions
    python tools/clean_install.py dist/*.whl dist/*.tar.gz
    python tools/clean_install.py --lowest           # with the lower bounds of pyproject.toml
    python tools/clean_install.py --print-lowest     # these bounds, for `pip install -c`

Each environment must hold what the core needs and none of what only extras do; the demo must end
well, its report and its page must be there, and the network in it must earn its keep.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = re.compile(r"[\w.-]+")


def plain(requirement: str) -> str:
    """The name of a requirement, as `pip list` is compared."""
    return re.sub(r"[-_.]+", "-", NAME.match(requirement)[0]).lower()


def lowest() -> list[str]:
    """The lower bound of each of the core's requirements, as a constraint."""
    bounds = []
    for requirement in PROJECT["dependencies"]:
        name, bound = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement).groups()
        bounds.append(f"{name}=={bound}")
    return bounds


def of_extras() -> set[str]:
    """What only extras ask for by name."""
    asked = {plain(r) for extra in PROJECT["optional-dependencies"].values() for r in extra}
    return asked - {plain(r) for r in PROJECT["dependencies"]} - {"varprop"}


def run(*command: object, cwd: pathlib.Path | None = None) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def try_out(what: pathlib.Path, constraints: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="varprop-clean-") as folder:
        place = pathlib.Path(folder)
        python = place / "env" / "bin" / "python"
        run(sys.executable, "-m", "venv", place / "env")
        (place / "lowest.txt").write_text("\n".join(constraints))
        pip = (python, "-m", "pip", "--disable-pip-version-check")
        begin = time.perf_counter()
        run(*pip, "install", "--quiet", "--constraint", place / "lowest.txt", what.resolve())
        installed = time.perf_counter() - begin
        there = json.loads(run(*pip, "list", "--format=json"))
        versions = {plain(package["name"]): package["version"] for package in there}
        if needless := versions.keys() & of_extras():
            sys.exit(f"{what.name}: installed without being asked for: {sorted(needless)}.")
        (place / "work").mkdir()
        varprop = python.with_name("varprop")
        version = run(varprop, "--version").split()[-1]
        begin = time.perf_counter()
        result = json.loads(run(varprop, "demo", "--json", cwd=place / "work"))
        took = time.perf_counter() - begin
        sizes = [(place / "work" / result[name]).stat().st_size for name in ("report", "page")]
        if min(sizes) < 20_000 or "clearly better than the linear" not in result["verdict"]:
            sys.exit(f"{what.name}: the demo ended in {result['verdict']!r}, pages of {sizes}.")
        which = "lowest" if constraints else "newest"
        named = ", ".join(f"{name} {versions[name]}" for name in ("jax", "scikit-learn", "numpy"))
        print(
            f"{what.name}, {which} versions ({named}): varprop {version}, {len(versions)} packages "
            f"in {installed:.0f} s; demo in {took:.0f} s. {result['verdict']}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="*", type=pathlib.Path, default=[ROOT], metavar="FILE")
    parser.add_argument("--lowest", action="store_true")
    parser.add_argument("--print-lowest", action="store_true")
    options = parser.parse_args()
    if options.print_lowest:
        print("\n".join(lowest()))
        return
    for what in options.what:
        try_out(what, lowest() if options.lowest else [])


if __name__ == "__main__":
    main()
