"""The console's page in a real browser: what it shows, how keys move, what a screen reader gets, what stays text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from kafka import KafkaProducer

from odradek.protocol import schema_prefix
from odradek.protocol.records import varint

from ....harness.browser import Browser
from ....harness.process import wait_until
from .conftest import GROUP, MARKUP, Console
from .registry_server import RegistryServer

pytestmark = [pytest.mark.live, pytest.mark.needs("chromium")]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def show(browser: Browser, console: Console, view: str, says: str, **parameters: object) -> None:
    """Load the page again at a view, and wait until it shows a text."""
    browser.open("about:blank")
    browser.open(f"http://{console.address}/#/{view}{'?' if parameters else ''}{urlencode(parameters)}")
    browser.wait(f"document.body.dataset.shown === '{view}'", f"{view} is shown")
    browser.wait(f"document.body.innerText.includes({says!r})", f"{view} says {says}")


def is_clean(browser: Browser) -> bool:
    """No markup became an element, no script of it ran, and nothing broke the page's policy."""
    made = browser.evaluate("document.images.length + document.querySelectorAll('main script').length")
    return made == 0 and browser.evaluate("document.body.dataset.pwned") is None and browser.faults == []


@pytest.mark.smoke
def test_the_overview_says_first_what_is_wrong(browser: Browser, console: Console) -> None:
    show(browser, console, "overview", "Nothing is wrong")
    browser.wait("document.body.innerText.includes('Broker 0, cluster')", "the head names the broker")
    text = browser.text()
    assert text.index("Nothing is wrong") < text.index("worker-0")
    browser.wait("document.querySelectorAll('svg.chart path').length === 3", "the load is drawn")
    assert is_clean(browser)


def test_markup_of_records_and_groups_is_shown_as_text(
    browser: Browser, console: Console, registry: RegistryServer
) -> None:
    show(browser, console, "messages", "records of orders-0", topic="orders", limit=5)
    assert MARKUP.replace('"', '\\"') in browser.text() and f"trace: {MARKUP}" in browser.text()
    assert is_clean(browser)
    show(browser, console, "messages", "records of payments-0", topic="payments")
    assert MARKUP in browser.text() and "000000  00 01 02 03" in browser.text()
    assert is_clean(browser)
    registry.add(8, "string")
    with KafkaProducer(bootstrap_servers=console.broker.bootstrap, acks="all") as producer:
        text = MARKUP.encode()
        producer.send("avro", schema_prefix.pack(8) + varint.encode(len(text)) + text)
        producer.send("avro", schema_prefix.pack(99))
    show(browser, console, "messages", "schema 8, string", topic="avro")
    assert MARKUP.replace('"', '\\"') in browser.text() and "no schema 99: the registry" in browser.text()
    assert is_clean(browser)
    show(browser, console, "groups", GROUP)
    browser.evaluate("document.querySelector('tbody a').click()")
    browser.wait("document.body.dataset.shown === 'group'", "the group is shown")
    browser.wait("document.querySelectorAll('main tbody tr').length === 1", "its partition is shown")
    assert f"Group {GROUP}" in browser.text() and "lag 100" in browser.text()
    assert is_clean(browser)


def test_markup_in_an_error_is_shown_as_text(browser: Browser, console: Console) -> None:
    show(browser, console, "topic", "there is no topic", name=MARKUP)
    assert MARKUP in browser.text() or "onerror" in browser.text()
    assert is_clean_but_refused(browser)


def is_clean_but_refused(browser: Browser) -> bool:
    """Like `is_clean`; the browser logs each answer that is not 200."""
    browser.faults[:] = [one for one in browser.faults if "404" not in one]
    return is_clean(browser)


def test_keys_filter_and_move(browser: Browser, console: Console) -> None:
    show(browser, console, "overview", "Nothing is wrong")
    browser.press("2")
    browser.wait("document.body.dataset.shown === 'topics'", "the key shows the topics")
    browser.wait("document.querySelectorAll('tbody tr').length >= 3", "all topics are shown")
    browser.press("/")
    browser.wait("document.activeElement.id === 'filter'", "the filter has the focus")
    for letter in "ord":
        browser.press(letter)
    browser.wait("document.querySelectorAll('tbody tr').length === 1", "one topic is left")
    assert browser.evaluate("document.activeElement.value") == "ord"
    browser.press("ArrowDown")
    browser.wait("document.activeElement.textContent === 'orders'", "the row has the focus")
    browser.press("Enter")
    browser.wait("document.body.dataset.shown === 'topic'", "the topic is shown")
    assert browser.evaluate("document.querySelector('h2').textContent") == "Topic orders"


def test_the_focus_stays_when_the_page_refreshes(browser: Browser, console: Console) -> None:
    show(browser, console, "topics", "orders")
    browser.press("ArrowDown")
    browser.evaluate("document.querySelector('tbody').dataset.former = '1'")
    focused = browser.evaluate("document.activeElement.textContent")
    browser.wait("!document.querySelector('tbody').dataset.former", "the page has refreshed")
    assert focused and browser.evaluate("document.activeElement.textContent") == focused


def test_a_screen_reader_gets_landmarks_names_and_headers(browser: Browser, console: Console) -> None:
    show(browser, console, "topics", "orders")
    roles = browser.roles()
    assert {"banner", "navigation", "main", "contentinfo", "search", "table", "columnheader", "rowheader"} <= {
        role for role, _ in roles
    }
    assert ("navigation", "Views") in roles and ("searchbox", "Topics whose name contains") in roles
    named = ("link", "button", "textbox", "searchbox", "img", "image")
    unnamed = [role for role, name in roles if role in named and not name]
    assert unnamed == []


def test_what_was_asked_for_is_said(browser: Browser, console: Console) -> None:
    show(browser, console, "messages", "5 records of orders-0", topic="orders", limit=5)
    browser.evaluate("document.querySelector('input[name=limit]').value = '3'")
    browser.evaluate("document.querySelector('form button').click()")
    said = "document.getElementById('status').textContent"
    browser.wait(f"{said}.startsWith('3 records of orders-0, read from offset 117')", "the status says what came")


def test_the_focus_goes_along_to_another_view(browser: Browser, console: Console) -> None:
    """A screen reader then says its title."""
    show(browser, console, "topics", "orders")
    browser.press("/")
    browser.press("ArrowDown")
    name = browser.evaluate("document.activeElement.textContent")
    browser.press("Enter")
    browser.wait("document.activeElement.id === 'main'", "the content has the focus")
    assert ("main", f"Topic {name}") in browser.roles()


def test_a_chart_is_read_once(browser: Browser, console: Console) -> None:
    show(browser, console, "overview", "Records in a second")
    said = [role for role, name in browser.roles() if name.startswith("Records in a second: ")]
    assert not {"img", "image"} & set(said) and "StaticText" in said


def test_keys_scroll_a_long_value(browser: Browser, console: Console) -> None:
    """It has a name, and the arrows are its own; a short value is no stop of the Tab key."""
    with KafkaProducer(bootstrap_servers=console.broker.bootstrap, acks="all") as producer:
        producer.send("long", str(list(range(100))).encode(), key=b"short")
    show(browser, console, "messages", "1 records of long-0", topic="long")
    assert browser.evaluate("[...document.querySelectorAll('pre')].map((one) => one.tabIndex)") == [-1, 0]
    assert ("group", "Value of offset 0") in browser.roles()
    browser.evaluate("document.querySelector('pre[tabindex]').focus()")
    browser.press("ArrowDown")
    browser.wait("document.querySelector('pre[tabindex]').scrollTop > 0", "the key scrolls the value")


def test_the_tab_key_passes_the_names_of_settings(browser: Browser, console: Console) -> None:
    """There are hundreds; the arrows move along them."""
    show(browser, console, "settings", "odradek.console.listener")
    assert browser.evaluate("[...document.querySelectorAll('tbody *')].filter((one) => one.tabIndex >= 0).length") == 0
    browser.press("ArrowDown")
    assert browser.evaluate("document.activeElement.matches('tbody th *')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser: Browser, console: Console, scheme: str) -> None:
    """WCAG's contrast of 4.5 for all colours of text."""
    show(browser, console, "overview", "Nothing is wrong")
    browser.scheme(scheme)
    assert browser.evaluate(LEAST_CONTRAST) >= 4.5
    is_dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    assert is_dark == (scheme == "dark")


# The contrast of each text with the nearest background that is not transparent, the least of the page.
LEAST_CONTRAST = """(() => {
  const parts = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => parts(color).slice(0, 3).map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      if (parts(found)[3] !== 0) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("h1,h2,h3,p,a,button,th,td,strong,caption,figcaption,label,input")];
  return Math.min(...texts.filter((one) => !one.disabled && one.offsetParent).map((one) => {
    const [a, b] = [light(getComputedStyle(one).color), light(behind(one))].sort();
    return (b + 0.05) / (a + 0.05);
  }));
})()"""


def test_a_picture_of_the_page(browser: Browser, console: Console, tmp_path: Path) -> None:
    """With records that come while it is drawn."""
    browser.scheme("light")
    show(browser, console, "overview", "Nothing is wrong")
    with KafkaProducer(bootstrap_servers=console.broker.bootstrap) as producer:

        def drawn() -> bool:
            producer.send("drawn", bytes(1000)).get(30)
            return (
                int(browser.evaluate("document.querySelector('svg.chart path').getAttribute('d').split('L').length"))
                > 8
            )

        wait_until(drawn, 60, "the load is drawn")
    browser.keep("console.png", tmp_path)
