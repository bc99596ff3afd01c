"""Walk one table through the house: which of varprop's own functions `fit` and `predict` pass.

Runs both commands on a CSV of 60 rows and prints, for each, how many functions of the library were
entered, in how many files they stand, and how often the walk changes the file from one function to
the next, functions taken in the order in which they are first entered. Functions are `def`s:
comprehensions, lambdas and generated methods are part of what holds them.

    python tools/trace_walk.py            # the counts
    python tools/trace_walk.py --list     # and the walk itself, room by room
"""

import argparse
import contextlib
import io
import itertools
import pathlib
import random
import sys
import tempfile
import threading


def write_table(path: pathlib.Path) -> None:
    draw = random.Random(0)
    lines = ["size,color,price"]
    for _ in range(60):
        size, color = draw.uniform(1, 5), draw.choice(["red", "blue"])
        lines.append(f"{size:.3f},{color},{3 * size + (color == 'red') + draw.gauss(0, 0.2):.3f}")
    path.write_text("\n".join(lines) + "\n")


class Walk:
    """The functions of the library, in the order in which they were first entered."""

    def __init__(self, root: pathlib.Path):
        self.root = str(root)
        self.seen: dict[tuple[str, str], None] = {}

    def look(self, frame, event, argument):
        if event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(self.root) and not code.co_name.startswith("<"):
            place = code.co_filename.removeprefix(self.root).lstrip("/")
            self.seen.setdefault((place, code.co_qualname))

    def __enter__(self):
        threading.setprofile(self.look)
        sys.setprofile(self.look)
        return self

    def __exit__(self, *error):
        sys.setprofile(None)
        threading.setprofile(None)

    def counts(self) -> tuple[int, int, int]:
        files = [place for place, _ in self.seen]
        switches = sum(a != b for a, b in itertools.pairwise(files))
        return len(files), len(set(files)), switches


def run(*arguments: str) -> None:
    from typer.testing import CliRunner

    from varprop.cli.app import app

    done = CliRunner().invoke(app, list(arguments))
    if done.exit_code:
        raise SystemExit(f"varprop {' '.join(arguments)} failed:\n{done.output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the walk")
    options = parser.parse_args()

    import jax
    import typer.testing  # noqa: F401

    import varprop

    root = pathlib.Path(varprop.__file__).parent
    print(f"{'':8} functions  files  file switches")
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        folder = pathlib.Path(name)
        table, model, out = (folder / n for n in ("data.csv", "model.safetensors", "out.csv"))
        write_table(table)
        commands = {
            "fit": (str(table), "--target", "price", "-o", str(model), "--max-iter", "20"),
            "predict": (str(model), str(table), "-o", str(out)),
        }
        for command, arguments in commands.items():
            run(command, *arguments)  # once untraced: what is done at import is not the walk
            jax.clear_caches()  # what an earlier walk has compiled would not be walked again
            with Walk(root) as walk:
                run(command, *arguments)
            functions, files, switches = walk.counts()
            print(f"{command:8} {functions:9}  {files:5}  {switches:13}")
            if options.list:
                last = None
                for place, function in walk.seen:
                    if place != last:
                        print(f"  {place}")
                    print(f"      {function}")
                    last = place


if __name__ == "__main__":
    main()
