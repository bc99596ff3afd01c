"""Draw the picture of a report in the docs: a quick fit of diabetes data, as a browser shows it.

Needs Debian's chromium. Run from the root of the repository:

    python tools/report_picture.py --output docs/figures/report.png
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from sklearn.datasets import load_diabetes

# As it is laid out, and how large a picture is made of it.
WIDTH, HEIGHT, SCALE = 1200, 1470, 0.7


def main() -> None:
    """Fit, write the report and take its picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="report.png", type=pathlib.Path)
    output = parser.parse_args().output.resolve()
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("There is no chromium: apt-get install chromium.")
    data = load_diabetes(as_frame=True, scaled=False)
    with tempfile.TemporaryDirectory() as folder:
        table = data.data.assign(sex=data.data["sex"].map({1: "a", 2: "b"}))
        table.assign(progression=data.target).to_csv(f"{folder}/diabetes.csv", index=False)
        fit = ["fit", "diabetes.csv", "--target", "progression", "--effort", "quick"]
        options = ["--holdout", "0.27", "--report", "report.html", "--quiet"]
        command = [sys.executable, "-m", "varprop", *fit, *options]
        subprocess.run(command, cwd=folder, check=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        flags += ["--disable-background-networking", f"--window-size={WIDTH},{HEIGHT}"]
        flags += [f"--force-device-scale-factor={SCALE}"]
        flags += [f"--user-data-dir={folder}/profile", f"--screenshot={output}"]
        page = pathlib.Path(folder, "report.html").as_uri()
        subprocess.run([browser, *flags, page], cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()
