"""Chromium of this machine for the tests of the page: what they share, and checks of access that can fail."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NEEDED = "BACKSCROLL_NEEDS_BROWSER"  # where it is set, as in CI, a missing browser is a failure
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = "Failed to load resource"  # what Chromium says of every answer of 400 and above, asked for or not

_ACCESS = Path(__file__).with_name("access.js").read_text("utf-8").partition("\n")[2]  # an object of checks
_WATCH = """
window.seen = [];
const refused = (event) => window.seen.push(`${event.violatedDirective}: ${event.blockedURI}`);
document.addEventListener('securitypolicyviolation', refused);
window.alert = window.confirm = window.prompt = (text) => window.seen.push(`dialog: ${text}`);
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; without one the tests are skipped."""
    path = next((found for name in _NAMES if (found := shutil.which(name))), None)
    if path is None and not os.environ.get(NEEDED):
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    assert path, f"{NEEDED} is set and there is no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """One visitor's page, and everything that went wrong on it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        options = {"viewport": {"width": 1440, "height": 900}, "reduced_motion": "reduce", **options}
        self.context = browser.new_context(locale="en-US", timezone_id="UTC", **options)
        self.context.add_init_script(_WATCH)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(15_000)
        self.url = url
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_QUIET):
            self.wrong.append(message.text)

    def open(self, place: str = "") -> Page:
        """Go to a place and wait until its context is there."""
        self.page.goto(f"{self.url}/#{place}")
        self.settled()
        return self.page

    def settled(self) -> None:
        """Wait until a context, or the reason why there is none, is shown for what was written last."""
        self.page.wait_for_timeout(350)  # longer than the page waits for another key
        self.page.wait_for_selector("#picture:not([aria-busy]) .shown > *", state="attached")

    def close(self) -> None:
        """Leave; nothing may have gone wrong."""
        seen = self.page.evaluate("window.seen")
        self.context.close()
        assert self.wrong == []
        assert seen == []


_NAMED = {"button", "link", "textbox", "searchbox", "combobox", "slider", "spinbutton", "tab", "tabpanel", "checkbox"}
_NAMED |= {"dialog", "navigation", "complementary", "main", "region", "feed", "article", "img", "DisclosureTriangle"}


def nameless(page: Page) -> list[str]:
    """What Chromium hands to a screen reader without a name."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    found = []
    for node in nodes:
        role = node.get("role", {}).get("value")
        if not node.get("ignored") and role in _NAMED and not node.get("name", {}).get("value", "").strip():
            found.append(f"{role} without a name ({node.get('backendDOMNodeId')})")
    return found


def faults(page: Page) -> list[str]:
    """Everything that keeps somebody from using the page as it is now."""
    found = page.evaluate(f"Object.values({_ACCESS}).flatMap((check) => check())")
    return [*found, *nameless(page)]
