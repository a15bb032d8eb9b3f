"""Draw a page as a browser shows it; it has no errors, no barriers, and needs no script."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Playwright

WIDTHS, SCHEMES = (1280, 390), ("light", "dark")
LONGEST = 4000  # pixels of a page that a picture shows
QUALITY = 45  # per cent; letters are still sharp
SERIOUS = ("serious", "critical")


def start_browser(playwright: Playwright) -> Browser:
    """Start the Chromium of this machine."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


def draw(browser: Browser, address: str, folder: Path, name: str) -> None:
    """Draw a page at each width and in each scheme; whatever is wrong with it is an error."""
    for width in WIDTHS:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": 900}, color_scheme=scheme
            )
            page = context.new_page()
            said: list[str] = []
            page.on("console", lambda message: said.append(message.text))  # noqa: B023 - used here
            page.on("pageerror", lambda error: said.append(str(error)))  # noqa: B023 - used here
            page.goto(address)
            wide = page.evaluate("document.documentElement.scrollWidth")
            high = min(LONGEST, page.evaluate("document.documentElement.scrollHeight"))
            page.set_viewport_size({"width": width, "height": high})
            (folder / f"{name}-{width}-{scheme}.webp").write_bytes(picture(page))
            said += barriers(page)
            if wide > width:
                said.append(f"the page is {wide} pixels wide")
            context.close()
            if said:
                raise SystemExit(f"{name}, {width} pixels, {scheme}: {said}")
    check_without_script(browser, address, name)
    print(f"{name} is drawn", flush=True)


def picture(page: Page) -> bytes:
    """Return what the page shows, as WebP: a third of a PNG."""
    how = {"format": "webp", "quality": QUALITY}
    session = page.context.new_cdp_session(page)
    return base64.b64decode(session.send("Page.captureScreenshot", how)["data"])


def barriers(page: Page) -> list[str]:
    """Return what axe-core finds that keeps people out."""
    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in SERIOUS
        for node in each["nodes"][:3]
    ]


def check_without_script(browser: Browser, address: str, name: str) -> None:
    """Compare the text and the plots with those in a browser that runs no script."""
    shown = []
    for allowed in (True, False):
        context = browser.new_context(java_script_enabled=allowed)
        page = context.new_page()
        page.goto(address)
        shown.append((page.locator("main").inner_text(), page.locator("main svg").count()))
        context.close()
    if shown[0] != shown[1]:
        raise SystemExit(f"{name}: the page is not complete without a script")
