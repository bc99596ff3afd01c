"""Draw the picture of the what-if page in README.md: `varprop demo`, and a headless Chromium.

python tools/picture_of_page.py docs/figures/what_if.png
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

WIDTH, HEIGHT, COLORS = 1280, 1000, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("output", type=pathlib.Path)
    output = parser.parse_args().output.resolve()
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        sys.exit("picture_of_page.py needs Chromium: install it.")
    from PIL import Image  # comes with matplotlib

    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        demo = [sys.executable, "-m", "varprop", "demo", "--quiet", "--page", "page.html"]
        subprocess.run(demo, cwd=place, check=True)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += ["--disable-background-networking", f"--window-size={WIDTH},{HEIGHT}"]
        options += [f"--screenshot={place / 'page.png'}", (place / "page.html").as_uri()]
        subprocess.run([browser, *options], check=True, capture_output=True, timeout=120)
        shot = Image.open(place / "page.png").convert("RGB")
        shot.quantize(COLORS, dither=Image.Dither.NONE).save(output, optimize=True)


if __name__ == "__main__":
    main()
