"""The report in a real browser: on a phone and on a desk, light and dark."""

import shutil

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="needs Selenium (package python3-selenium)")

PHONE, DESK = (390, 844), (1280, 900)
# The smallest text that is still read without zooming, in CSS pixels, and the contrast that WCAG 2.1 (1.4.3) asks for.
TEXT_PX_MIN = 8
CONTRAST_MIN = 4.5

MEASURE = """
const style = getComputedStyle(document.body);
const texts = [...document.querySelectorAll("figure svg text")].filter(t => t.textContent.trim());
const scale = t => t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width;
return {
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  ink: style.color,
  page: style.backgroundColor,
  figures: document.querySelectorAll("figure svg").length,
  hidden: [...document.querySelectorAll("figure svg")].filter(s => s.getBoundingClientRect().height < 40).length,
  cut: [...document.querySelectorAll("figure")].filter(f => f.scrollWidth > f.clientWidth + 1).length,
  outside: texts.filter(t => {
    const [text, svg] = [t.getBoundingClientRect(), t.ownerSVGElement.getBoundingClientRect()];
    return text.left < svg.left - 2 || text.right > svg.right + 2;
  }).map(t => t.textContent),
  text: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize) * scale(t))),
  inks: [...new Set(texts.map(t => getComputedStyle(t).fill))],
  broken: [...document.querySelectorAll("a[href^='#']")].filter(a => !document.querySelector(a.hash)).length,
};
"""


@pytest.fixture(scope="module")
def browser():
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        pytest.skip("needs Chromium (packages chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    # The pages are the test's own; Chromium's sandbox does not work for root.
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(service=service, options=options)
    yield driver
    driver.quit()


def look(browser, reported, size, scheme):
    width, height = size
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.get((reported / "index.html").as_uri())
    return browser.execute_script(MEASURE)


def channels(colour):
    """The 8-bit channels of "rgb(1, 2, 3)"."""
    return [float(value) for value in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def luminance(colour):
    """Relative luminance, WCAG 2.1."""
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_is_readable(browser, reported, size, scheme):
    seen = look(browser, reported, size, scheme)
    assert seen["overflow"] <= 0, "the page scrolls sideways"
    assert seen["figures"] > 30 and seen["hidden"] == 0 and seen["cut"] == 0
    assert seen["outside"] == [], "text that is cut off"
    assert seen["text"] >= TEXT_PX_MIN, "the plots' text is too small"
    assert contrast(seen["ink"], seen["page"]) >= CONTRAST_MIN
    assert seen["inks"] == [seen["ink"]], "the plots' text has the page's colour"
    assert (luminance(seen["page"]) < 0.1) == (scheme == "dark")
    assert seen["broken"] == 0
    assert browser.get_log("browser") == []


def test_tables_open(browser, reported):
    look(browser, reported, PHONE, "light")
    closed = "return [...document.querySelectorAll('details')].filter(d => !d.open).length"
    before = browser.execute_script(closed)
    assert before > 0
    browser.execute_script("document.querySelector('details summary').click()")
    assert browser.execute_script(closed) == before - 1
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
