"""The what-if page in a real browser: its numbers are Python's, and nothing in a table runs."""

import csv
import json
import re
import time

import numpy as np
import pytest

import test_report_browser
from cli_runs import houses, run, sentence, workplace
from test_exports import hostile_plan, network, plan_of
from varprop import likelihoods
from varprop.data.domain import Domain
from varprop.exports.columns import Columns
from varprop.exports.page import write_what_if
from varprop.tables.model import TableModel

By, Keys, Wait = (getattr(test_report_browser, n) for n in ("By", "Keys", "WebDriverWait"))
pytestmark = test_report_browser.pytestmark
browser, open_page = test_report_browser.browser, test_report_browser.open_page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page of a model of a table: two numbers, one of which may be missing, and a category."""
    path = tmp_path_factory.mktemp("pages") / "houses.html"
    run("page", workplace() / "impute.safetensors", "-o", path, "--title", "Houses", "-q")
    return path


def text_of(browser, css):
    return browser.find_element(By.CSS_SELECTOR, css).text


def put(browser, css, value):
    """Set a field, a slider or a menu as a user's hand does."""
    browser.execute_script(
        "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}));",
        css,
        str(value),
    )
    browser.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0], 0))")


def predicted(browser, table, folder):
    """Paste a table, predict it, and return the lines of the downloaded file."""
    where = {"behavior": "allow", "downloadPath": str(folder)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    put(browser, "#pasted", table)
    browser.find_element(By.ID, "predict").click()
    browser.find_element(By.ID, "download").click()
    file = folder / "predictions.csv"
    Wait(browser, 10).until(lambda _: file.exists() and file.read_text().endswith("\n"))
    with open(file, newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_pasted_table_is_predicted_as_python_does(browser, page, tmp_path):
    lines = houses(80).replace("Ulm", "ULM ").splitlines()
    # Sizes far beyond, and on both sides of where a size is.
    for i, size in enumerate([900, -900, *range(180, 300, 5), *range(-40, 40, 5)], 5):
        lines[i] = re.sub(r"^(h\d+),[^,]*", rf"\1,{size}", lines[i])
    (tmp_path / "new.csv").write_text("\n".join(lines).replace("ULM ", "Ulm") + "\n")
    open_page(browser, page)
    found = predicted(browser, "\n".join(lines), tmp_path)
    out = tmp_path / "out.csv"
    model = workplace() / "impute.safetensors"
    run("predict", model, tmp_path / "new.csv", "-o", out, "--interval", "0.9", "-q")
    with open(out, newline="") as file:
        expected = list(csv.DictReader(file))
    assert [row["id"] for row in found] == [row["id"] for row in expected]
    assert any(row["rooms"] == "" for row in found)
    for name in ("mean", "std", "lower", "upper"):
        got, want = (np.array([float(row[name]) for row in rows]) for rows in (found, expected))
        np.testing.assert_allclose(got, want, rtol=1e-6)
    assert [row["outside"] != "" for row in found] == [row["outside"] != "" for row in expected]
    assert 10 < sum(row["outside"] != "" for row in found) < 70
    assert found[4]["outside"].startswith("size is 900, seen ")
    assert "80 rows, with 90 % intervals" in text_of(browser, "#table-words")


def test_what_is_shown_follows_the_inputs(browser, page):
    open_page(browser, page)
    model = TableModel.load_plan(workplace() / "impute.safetensors").regressor
    put(browser, "#input-0", 150)
    put(browser, "#input-1", 4)
    put(browser, "#input-2", 1)
    dist = model.predict_dist(np.array([[150.0, 4.0, 0.0, 1.0]]))
    mean, low, high = dist.mean[0], *dist.quantile([0.05, 0.95])[0]
    said = text_of(browser, "#headline").replace(",", "")
    assert said.startswith(f"price: {mean:.4g} ± {dist.std[0]:.3g}")
    assert said.endswith(f"90 % between {low:.4g} and {high:.4g}")
    put(browser, "#coverage", "0.5")
    assert "50 % between" in text_of(browser, "#headline")
    curve = "return document.querySelector('#curve svg').outerHTML"
    before = browser.execute_script(curve)
    put(browser, "#along", "1")
    assert browser.execute_script(curve) != before
    assert "as rooms changes" in text_of(browser, "#curve-words")
    put(browser, "#along", "2")
    assert "city" in browser.find_element(By.CSS_SELECTOR, "#curve svg").get_attribute("aria-label")
    # An unknown number is fed as its mean, with an error.
    browser.find_elements(By.CSS_SELECTOR, ".seen input")[1].click()
    put(browser, "#coverage", "0.5")
    assert text_of(browser, "#headline").split(" 50 %")[0] != said.split(" 90 %")[0]
    assert not browser.find_element(By.ID, "input-1").is_enabled()
    # Beyond what was seen it says so, also to who does not see it.
    assert not browser.find_element(By.ID, "warning").is_displayed()
    put(browser, "#input-0", 900)
    warning = text_of(browser, "#warning")
    assert warning.startswith("Unlike the training data: size is 900, seen ")
    spoken = browser.find_element(By.ID, "spoken")
    Wait(browser, 5).until(lambda _: warning in spoken.get_attribute("textContent"))
    browser.find_element(By.ID, "reset").click()
    Wait(browser, 5).until(lambda _: not browser.find_element(By.ID, "warning").is_displayed())


def test_by_keyboard_and_by_name(browser, page):
    open_page(browser, page)
    slider = browser.find_element(By.CSS_SELECTOR, "input[type=range]")
    before = float(slider.get_attribute("value"))
    slider.send_keys(Keys.ARROW_RIGHT)
    time.sleep(0.1)
    assert float(slider.get_attribute("value")) > before
    shown = browser.find_element(By.ID, "input-0").get_attribute("value")
    assert float(shown) == pytest.approx(float(slider.get_attribute("value")), rel=1e-5)
    nameless = browser.execute_script(
        "const all = [...document.querySelectorAll('input, select, textarea, button, svg')];"
        "return all.filter((e) =>"
        " !(e.labels && e.labels.length) && !e.getAttribute('aria-label') &&"
        " !e.textContent.trim()).map((e) => e.outerHTML)"
    )
    assert nameless == []


@pytest.mark.parametrize("width", [390, 1280])
def test_it_loads_nothing_and_fits(browser, page, width):
    colors = []
    for dark in (False, True):
        open_page(browser, page, width=width, dark=dark)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        colors.append(test_report_browser.background(browser))
    assert colors[0] != colors[1]
    assert browser.get_log("browser") == []
    said = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    sent = (m["params"] for m in said if m["method"] == "Network.requestWillBeSent")
    assert {part["request"]["url"].split(":")[0] for part in sent} <= {"file", "data", "about"}


def test_bad_tables_are_refused_in_a_sentence(browser, page):
    open_page(browser, page)

    def said(table):
        put(browser, "#pasted", table)
        browser.find_element(By.ID, "predict").click()
        assert not browser.find_element(By.ID, "download").is_displayed()
        return text_of(browser, "#table-words")

    assert said("").startswith("Paste a line with the names of the columns")
    assert said("size,place\n1,2") == (
        "The table lacks the columns rooms, city; it has size, place."
    )
    put(browser, "#pasted", "size;rooms;city\n1,5;2;Ulm\n3;2;Rom\n;2;Bern\nmany;1;Bern")
    browser.find_element(By.ID, "predict").click()
    cells = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#table-scroll td")]
    assert cells[7::8][1] == 'city is "Rom", which the training data did not have'
    assert cells[7::8][3] == 'size is "many", no number'
    assert "2 could not be predicted" in text_of(browser, "#table-words")


def test_hostile_names_and_cells_do_nothing(browser, tmp_path):
    plan, columns, _ = hostile_plan()
    evil = "</script><script>document.title='run'</script>"
    write_what_if(plan, columns, tmp_path / "evil.html", title=evil)
    open_page(browser, tmp_path / "evil.html", width=390)
    assert browser.title == evil
    assert browser.get_log("browser") == []
    boxes = browser.find_elements(By.CSS_SELECTOR, ".name")
    names = [box.get_attribute("textContent") for box in boxes]
    assert names == list(columns.names)
    put(browser, "#along", str(len(columns) - 1))
    assert browser.get_log("browser") == []
    quoted = ['"' + name.replace('"', '""') + '"' for name in (*columns.names, "=1+1")]
    cells = [*["0.5"] * (len(columns) - 1), '"*/"', '"=HYPERLINK(""http://evil"")"']
    (row,) = predicted(browser, ",".join(quoted) + "\n" + ",".join(cells), tmp_path)
    assert row["'=1+1"] == '\'=HYPERLINK("http://evil")'
    assert row["'=cmd()|'x'"] == "0.5"
    assert float(row["mean"]) == pytest.approx(0.5 * (len(columns) - 1) + 1)
    assert browser.title == evil


def test_many_inputs_are_searched_and_turned(browser, tmp_path):
    plan, _, _ = hostile_plan()
    n = 200
    x = np.random.default_rng(0).normal(size=(60, n))
    scaling = type(plan.scaling_)(np.zeros(n), np.ones(n), np.zeros(1), np.ones(1))
    numbers = np.zeros(n), np.ones((1, n)), np.zeros(1), np.ones(1), np.zeros((1, n, n))
    line = type(plan.parts["linear"])(scaling, *numbers)
    names = tuple(f"gene {i}" for i in range(n))
    seen = {"domain_": Domain.of(x), "feature_names_in_": names}
    plan = type(plan)(scaling, {"linear": line}, {"linear": 1.0}, True, **seen)
    write_what_if(plan, Columns.of_plan(plan), tmp_path / "many.html", title="many")
    open_page(browser, tmp_path / "many.html")

    def shown():
        boxes = browser.find_elements(By.CSS_SELECTOR, ".input:not([hidden]) .name")
        return [box.text for box in boxes]

    assert shown() == list(names[:12])
    browser.find_element(By.ID, "after").click()
    assert shown() == list(names[12:24])
    assert text_of(browser, "#page-of") == "13 to 24 of 200"
    browser.find_element(By.ID, "search").send_keys("GENE 19")
    assert shown() == ["gene 19", *(f"gene {i}" for i in range(190, 200))]
    browser.find_element(By.ID, "search").send_keys("x")
    assert shown() == []
    # On paper there is nothing to turn: all are there, without what only a hand can use.
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    drawn = browser.find_elements(By.CSS_SELECTOR, ".input .name")
    assert sum(box.is_displayed() for box in drawn) == n
    for css in ("#search", "#pages", "#pasted", "input[type=range]", "#theme"):
        assert not browser.find_element(By.CSS_SELECTOR, css).is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize(
    ("outputs", "end"),
    [(3, likelihoods.Categorical([0.1, -0.2, 0.7])), (1, likelihoods.Ordinal([-1.5, 0.2]))],
    ids=["softmax", "ordinal"],
)
def test_classes_are_shown(browser, tmp_path, outputs, end):
    plan = plan_of(network(outputs, end=end), classes=("a", "<b>", "c"))
    write_what_if(plan, Columns.of_plan(plan), tmp_path / "classes.html", title="classes")
    open_page(browser, tmp_path / "classes.html")
    x = plan.scaling_.x_shift[None]
    proba = plan.predict_dist(x).proba[0]
    label = browser.find_element(By.CSS_SELECTOR, "#density svg").get_attribute("aria-label")
    for name, p in zip(("a", "<b>", "c"), proba, strict=True):
        assert f"{name} {100 * p:.3g} %" in label
    assert text_of(browser, "#headline").startswith("y: ")
    (row,) = predicted(browser, "x0,x1,x2\n" + ",".join(map(repr, x[0].tolist())), tmp_path)
    got = [float(row[f"p_{name}"]) for name in ("a", "<b>", "c")]
    np.testing.assert_allclose(got, proba, rtol=1e-6)


def test_the_command_refuses_in_one_sentence(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    said = sentence("page", tmp_path / "t.csv", "-o", tmp_path / "p.html", code=3)
    assert said.startswith("t.csv is a table, not a model file")
    sentence("page", tmp_path / "none", "-o", tmp_path / "p.html", code=3)
    assert not (tmp_path / "p.html").exists()
