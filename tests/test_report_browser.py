"""The HTML pages in a real browser: Debian's chromium, headless."""

import io
import json
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest

from varprop.predictive import Predictive
from varprop.predictive.budget import Budget
from varprop.report import write_benchmark_report, write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.select import Select  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver (apt: chromium-driver)"
)

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)> \"quoted\" 'it' &amp;"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('profile')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    options.unhandled_prompt_behavior = "ignore"
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    """Two targets, more rows than are drawn, and hostile names everywhere."""
    rng = np.random.default_rng(0)
    n = 2000
    x = rng.normal(size=(n, 2))
    mean = x @ np.array([[1.0, 20.0], [2.0, 0.0]])
    model = np.stack([0.1 + x[:, 0] ** 2, 30 + x[:, 1] ** 2], axis=1)
    prediction = Predictive.gaussian(mean, model, [0.3, 60.0])
    y = prediction.sample(random_state=1)[..., 0]
    y[[7, 12, 30], 0] = mean[[7, 12, 30], 0] + [40, -30, 20]
    path = tmp_path_factory.mktemp("pages") / "report.html"
    write_report(
        path,
        title=f"Pump {HOSTILE}",
        prediction=prediction,
        y=y,
        target_names=[f"load {HOSTILE}", "heat"],
        features={
            f"speed {HOSTILE}": x[:, 0],
            "age": x[:, 1],
            "site": np.where(x[:, 0] > 0, HOSTILE, "Garching"),
        },
        row_labels=[f"pump {i} {HOSTILE}" for i in range(n)],
        scorecard={"this model": {"NLL": 1.0}, f"linear {HOSTILE}": {"NLL": 2.0}},
        loss_curve=np.exp(-np.arange(50) / 9.0),
        importance={f"speed {HOSTILE}": (0.6, 0.3), "age": (0.2, 0.5)},
        settings={f"path {HOSTILE}": HOSTILE},
    )
    return path


@pytest.fixture(scope="session")
def crowded(tmp_path_factory):
    """Long names, large numbers and skewed values: what asks most of the room in charts."""
    rng = np.random.default_rng(1)
    n = 300
    size = np.geomspace(2e3, 9e5, n)
    mean = size * np.exp(0.3 * rng.normal(size=n))
    prediction = Predictive.gaussian(mean, (0.3 * size) ** 2, 1e6)
    names = ["number of customer service calls", "WWWWWWWWWWWWWWWWWWWWWWWW", "MMM", "rain"]
    features = dict(zip(names, rng.lognormal(0, 3, size=(4, n)), strict=True))
    features["place"] = np.array(["Wwwwwwwwwwwwwwwwww", "Mmmmmmmmmmmmmmmm", "x"] * 100)
    variance = np.stack([(0.3 * size) ** 2, np.full(n, 1e6)], axis=1)
    path = tmp_path_factory.mktemp("pages") / "crowded.html"
    write_report(
        path,
        title="Crowded",
        prediction=prediction,
        y=size,
        target_names=["median value of owner-occupied housing, in dollars"],
        features=features,
        row_labels=[f"WAREHOUSE WEST MMM {i}" for i in range(n)],
        loss_curve=np.exp(-np.arange(2000) / 900.0),
        importance=dict.fromkeys(features, (0.5, 3.0)),
        budget=Budget(["weights", "noise"], variance),
    )
    return path


@pytest.fixture(scope="session")
def benchmark(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "benchmark.html"
    base = {"protocol": "20 splits", "n_splits": 20, "nll_se": 0.05, "paper_pm": 0.06}
    rows = [
        {"dataset": "boston", "method": "FAWN", "verdict": "reproduced", "nll_mean": 2.4},
        {"dataset": "boston", "method": HOSTILE, "verdict": "worse", "nll_mean": 10.0},
        {
            "dataset": "yacht",
            "method": "FAWN",
            "verdict": "better",
            "nll_mean": -1.0,
            "protocol": "paper",
        },
        {"dataset": "wine", "method": "FAWN", "verdict": "not in the paper"},
        {"dataset": "year", "method": "FAWN", "verdict": "data not present"},
    ]
    rows = [
        {**base, "paper_nll": 2.3, "difference_in_se": i - 1.0, **r} for i, r in enumerate(rows)
    ]
    write_benchmark_report(path, title="Table 1", rows=rows, notes=[HOSTILE])
    return path


def open_page(browser, path, *, width=1200, dark=False):
    """Open a page in a window of its own size and color scheme, with empty logs."""
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(path.as_uri())


def column(browser, table, index):
    rows = browser.find_elements(By.CSS_SELECTOR, f"{table} tbody tr")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[index].text for row in rows]


def background(browser):
    return browser.execute_script("return getComputedStyle(document.body).backgroundColor")


@pytest.mark.parametrize("page", ["report", "benchmark"])
def test_loads_without_errors_or_network(browser, page, request):
    path = request.getfixturevalue(page)
    open_page(browser, path)
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert path.as_uri() in asked  # the log sees requests at all
    assert {url for url in asked if not url.startswith("data:")} == {path.as_uri()}
    assert browser.execute_script("return document.compatMode") == "CSS1Compat"
    assert "NaN" not in browser.find_element(By.TAG_NAME, "body").text


def test_the_logs_would_show_errors_and_requests(browser, tmp_path):
    """The test above can fail."""
    path = tmp_path / "bad.html"
    path.write_text("<!DOCTYPE html><img src='absent.png'><script>undefinedName()</script>")
    browser.get("about:blank")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())
    assert len(browser.get_log("browser")) == 2
    assert any("absent.png" in entry["message"] for entry in browser.get_log("performance"))


@pytest.mark.parametrize("page", ["report", "benchmark"])
def test_text_from_data_is_shown_and_not_run(browser, page, request):
    open_page(browser, request.getfixturevalue(page))
    shown = browser.find_element(By.TAG_NAME, "body").text
    assert HOSTILE in shown
    # An alert would have to be answered before anything else could be asked of the page.
    scripts = "return [...document.scripts].map(s => s.type || 'js').sort()"
    expected = ["application/json", "js"] if page == "report" else ["js"]
    assert browser.execute_script(scripts) == expected
    assert browser.execute_script("return document.images.length") == 0


def test_the_policy_stops_a_script_that_got_in(browser, report):
    """Even text that escaped its escaping would not run."""
    open_page(browser, report)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        "document.body.append(s);"
    )
    assert browser.execute_script("return window.ran") is None
    assert "Content Security Policy" in browser.get_log("browser")[0]["message"]


def test_tables_sort_by_click_and_by_keyboard(browser, report):
    open_page(browser, report)
    table = "section.target:not([hidden]) table.surprising"
    z = [abs(float(t.replace(MINUS, "-"))) for t in column(browser, table, 4)]
    assert z == sorted(z, reverse=True)
    assert column(browser, table, 0)[0].startswith("pump 7 ")
    buttons = browser.find_elements(By.CSS_SELECTOR, f"{table} thead button")
    heads = browser.find_elements(By.CSS_SELECTOR, f"{table} thead th")
    buttons[1].click()
    observed = [float(t.replace(MINUS, "-")) for t in column(browser, table, 1)]
    assert observed == sorted(observed)
    assert [head.get_attribute("aria-sort") for head in heads[:2]] == ["none", "ascending"]
    buttons[1].send_keys(Keys.ENTER)
    observed = [float(t.replace(MINUS, "-")) for t in column(browser, table, 1)]
    assert observed == sorted(observed, reverse=True)
    buttons[0].send_keys(Keys.SPACE)
    labels = [int(text.split()[1]) for text in column(browser, table, 0)]
    assert labels == sorted(labels)  # "pump 7" before "pump 12": numbers inside words count


def test_hovering_shows_the_row(browser, report):
    open_page(browser, report)
    tip = browser.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    chart = browser.find_element(By.CSS_SELECTOR, "svg.pick[data-target='0']")
    dot = chart.find_element(By.CSS_SELECTOR, ".points > :nth-child(3)")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser).move_to_element(dot).perform()
    assert tip.is_displayed()
    lit = browser.find_element(By.CSS_SELECTOR, "svg.pick .points > .on")
    index = browser.execute_script(
        "return [...arguments[0].parentNode.children].indexOf(arguments[0])", lit
    )
    data = json.loads(browser.find_element(By.ID, "data").get_attribute("textContent"))
    target = data["targets"][0]
    label, *values = data["rows"][target["row"][index]]
    assert label in tip.text
    assert target["observed"][index] in tip.text
    assert target["predicted"][index] in tip.text
    for name, value in zip(data["inputs"], values, strict=True):
        assert name in tip.text
        assert value in tip.text
    assert HOSTILE in tip.text
    ActionChains(browser).move_to_element(browser.find_element(By.TAG_NAME, "h1")).perform()
    assert not tip.is_displayed()


def test_arrow_keys_step_through_the_rows(browser, report):
    open_page(browser, report)
    tip = browser.find_element(By.ID, "tip")
    chart = browser.find_element(By.CSS_SELECTOR, "svg.pick[data-target='0']")
    chart.send_keys(Keys.ARROW_RIGHT)
    first = tip.text
    chart.send_keys(Keys.ARROW_RIGHT)
    second = tip.text
    chart.send_keys(Keys.ARROW_LEFT)
    assert first
    assert tip.text == first != second
    chart.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_a_surprising_row_lights_up_in_the_charts(browser, report):
    open_page(browser, report)
    row = browser.find_element(By.CSS_SELECTOR, "section.target:not([hidden]) tr[data-point]")
    browser.execute_script("arguments[0].focus()", row)
    assert len(browser.find_elements(By.CSS_SELECTOR, "svg.pick .points > .on")) == 2
    assert "pump 7 " in browser.find_element(By.ID, "tip").text


def test_one_target_is_shown_at_a_time(browser, report):
    open_page(browser, report)
    sections = browser.find_elements(By.CSS_SELECTOR, "section.target")
    assert [s.is_displayed() for s in sections] == [True, False]
    choice = Select(browser.find_element(By.ID, "target"))
    choice.select_by_visible_text("heat")
    assert [s.is_displayed() for s in sections] == [False, True]
    choice.select_by_value("all")
    assert [s.is_displayed() for s in sections] == [True, True]
    assert "1,500 of 2,000 rows are drawn" in sections[0].text


@pytest.mark.parametrize("dark", [False, True])
def test_light_and_dark_follow_the_system_and_the_button(browser, report, dark):
    open_page(browser, report, dark=dark)
    before = background(browser)
    assert before == ("rgb(17, 22, 29)" if dark else "rgb(244, 245, 247)")
    browser.find_element(By.ID, "theme").click()
    after = background(browser)
    assert after == ("rgb(244, 245, 247)" if dark else "rgb(17, 22, 29)")
    browser.refresh()
    assert background(browser) == after  # the choice is kept
    browser.find_element(By.ID, "theme").click()
    assert background(browser) == before
    browser.execute_script("localStorage.clear()")


@pytest.mark.parametrize("page", ["report", "benchmark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_does_not_scroll_sideways(browser, page, width, request):
    open_page(browser, request.getfixturevalue(page), width=width)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width


@pytest.mark.parametrize("page", ["report", "benchmark"])
def test_on_a_phone_every_cell_is_in_sight_under_its_heading(browser, page, request):
    open_page(browser, request.getfixturevalue(page), width=390)
    cells = browser.execute_script(
        "return [...document.querySelectorAll('tbody td')].filter(c => c.offsetParent).map(c => "
        "[c.getBoundingClientRect().left, c.getBoundingClientRect().right, c.cellIndex,"
        " getComputedStyle(c, '::before').content, c.closest('table').tHead.innerText])"
    )
    assert len(cells) > 10
    for left, right, _, label, headings in cells:
        assert 0 <= left < right <= 390
        assert label.strip('"').replace('\\"', '"') in headings


@pytest.mark.parametrize("dark", [False, True])
def test_a_table_that_goes_on_says_so_at_its_side(browser, benchmark, dark):
    """The outermost pixels of a table are darker or lighter only where there is more to see."""
    open_page(browser, benchmark, width=700, dark=dark)
    box = browser.find_element(By.CSS_SELECTOR, ".scroll")
    more = "return arguments[0].scrollWidth - arguments[0].clientWidth"
    assert browser.execute_script(more, box) > 20

    def edges():
        picture = box.screenshot_as_png
        image = plt.imread(io.BytesIO(picture))[-3, :, :3]  # the last line has no text
        return [abs(image[k] - image[len(image) // 2]).max() > 0.05 for k in (1, -2)]

    assert edges() == [False, True]
    browser.execute_script("arguments[0].scrollLeft = 10000", box)
    assert edges() == [True, False]


@pytest.mark.parametrize("page", ["report", "benchmark", "crowded"])
@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_of_a_chart_is_cut_or_runs_into_another(browser, page, width, request):
    open_page(browser, request.getfixturevalue(page), width=width)
    browser.execute_script("document.querySelectorAll('section').forEach(s => s.hidden = false)")
    cut, over, n = browser.execute_script("""
        const all = [...document.querySelectorAll('svg.chart')], cut = [], over = [];
        const box = (node) => node.getBoundingClientRect();
        let n = 0;
        all.forEach((svg) => {
            const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent);
            const outer = box(svg);
            n += texts.length;
            texts.forEach((text, i) => {
                const a = box(text), own = text.firstChild ? text.firstChild.data : '';
                if (a.left < outer.left - 1 || a.right > outer.right + 1 ||
                    a.top < outer.top - 1 || a.bottom > outer.bottom + 1) cut.push(own);
                texts.slice(i + 1).forEach((other) => {
                    const b = box(other);
                    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                    const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                    // Boxes of lines are taller than their letters.
                    if (wide > 1 && tall > 0.35 * Math.min(a.height, b.height))
                        over.push(own + ' / ' + other.firstChild.data);
                });
            });
        });
        return [cut, over, n];
    """)
    assert n > 10
    assert cut == []
    assert over == []


def test_filters_of_the_benchmark(browser, benchmark):
    open_page(browser, benchmark)

    def shown():
        rows = browser.find_elements(By.CSS_SELECTOR, "table.filtered tbody tr")
        visible = [row for row in rows if row.is_displayed()]
        assert browser.find_element(By.ID, "shown").text == str(len(visible))
        return [row.get_attribute("data-dataset") for row in visible]

    def reset():
        browser.find_element(By.CSS_SELECTOR, "button[type=reset]").click()
        # The page filters again only after the browser has emptied the form.
        WebDriverWait(browser, 10).until(lambda _: browser.find_element(By.ID, "shown").text == "4")

    assert shown() == ["boston", "boston", "yacht", "wine"]
    pick = {
        s.get_attribute("name"): Select(s) for s in browser.find_elements(By.TAG_NAME, "select")
    }
    pick["dataset"].select_by_visible_text("boston")
    assert shown() == ["boston", "boston"]
    pick["verdict"].select_by_visible_text("worse")
    assert shown() == ["boston"]
    reset()
    assert len(shown()) == 4
    pick["method"].select_by_visible_text(HOSTILE)
    assert shown() == ["boston"]
    reset()
    pick["protocol"].select_by_visible_text("paper")
    assert shown() == ["yacht"]
    reset()
    browser.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("YACHT")
    assert shown() == ["yacht"]


def test_benchmark_sorts_numbers_and_leaves_the_unknown_last(browser, benchmark):
    open_page(browser, benchmark)
    ours = browser.find_elements(By.CSS_SELECTOR, "table.filtered thead button")[5]
    ours.click()
    assert column(browser, "table.filtered", 0) == ["yacht", "boston", "boston", "wine"]
    ours.click()
    assert column(browser, "table.filtered", 0) == ["boston", "boston", "yacht", "wine"]
    assert column(browser, "table.filtered", 3) == [
        "▼ worse",
        "= reproduced",
        "▲ better",
        "+ not in the paper",
    ]
    shown = browser.find_element(By.TAG_NAME, "main").text
    assert "The data was not there, so nothing was run. year (FAWN)." in shown
