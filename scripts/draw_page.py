"""Make docs/page.png and docs/page-phone.png: the web page over the sample conversation, in Chromium.

    python scripts/draw_page.py

Needs the packages of `make setup-dev`, the local embedder's model, and Chromium.
"""

import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import backscroll  # noqa: E402
from backscroll.cli import main  # noqa: E402
from serving import served  # noqa: E402

QUESTION = "How many vans do we run now, and who drives the early bakery route?"
DESKTOP = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}
PHONE = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "device_scale_factor": 2, "is_mobile": True}


def draw(browser: Browser, url: str, options: dict[str, Any], path: Path, show: str = "") -> None:
    page = browser.new_context(reduced_motion="reduce", timezone_id="UTC", **options).new_page()
    page.goto(f"{url}/#user=alice&thread=reports-2025-10")
    page.wait_for_selector(".budget-bar", state="attached")
    page.fill("#prompt", QUESTION)
    page.wait_for_timeout(1500)
    if show:
        page.click(show)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    # A third of the bytes; no color is more than 4 of 255 away. Other methods lose the few pixels of a rare color.
    picture.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = str(Path(folder) / "chat.db")
        main(["import", str(ROOT / "examples" / "support_chat.jsonl"), "--db", db], standalone_mode=False)
        llm = backscroll.ScriptedLLM([])
        with (
            backscroll.open(db, llm=llm) as memory,
            served(memory, max_tokens=2000) as server,
            sync_playwright() as playwright,
        ):
            path = shutil.which("chromium")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
            draw(browser, server.url, DESKTOP, ROOT / "docs" / "page.png")
            draw(browser, server.url, PHONE, ROOT / "docs" / "page-phone.png", show="#meter")
            browser.close()


if __name__ == "__main__":
    run()
