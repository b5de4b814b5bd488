"""A page in a real headless Chromium, with a script of the test's own at its end."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# No GPU, no display, no network of the browser's own.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip

# Before the page's own script: whatever goes wrong or reaches outside is kept.
WATCH = """<script>
window.trouble = [];
addEventListener("error", (e) => trouble.push(`error: ${e.message}`));
addEventListener("securitypolicyviolation", (e) => trouble.push(`refused: ${e.blockedURI}`));
</script>"""
ASK = """<script>
const answer = (() => {{ {code} }})();
const outside = performance.getEntriesByType("resource").map((e) => `asked for: ${{e.name}}`);
const told = document.createElement("pre");
told.id = "told";
told.textContent = JSON.stringify({{ answer, trouble: [...trouble, ...outside] }});
document.body.append(told);
</script>"""


def browser() -> str:
    """The browser's path; "" where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), "")


def ask(page: str, code: str, folder: Path, picture: Path | None = None) -> tuple[Any, list[str]]:
    """What the JavaScript `code` returns on the page, and what went wrong or reached outside."""
    path = folder / "page.html"
    page = page.replace("<title>", f"{WATCH}<title>", 1)
    path.write_text(page.replace("</body>", ASK.format(code=code) + "</body>"), "utf-8")
    picture_flags = [f"--screenshot={picture}"] if picture else []
    done = subprocess.run(
        [browser(), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1200,1600",
         "--dump-dom", *picture_flags, path.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    actual = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    if actual is None:
        raise AssertionError(f"the page did not answer: {done.stdout[-500:]} {done.stderr[-500:]}")
    told = json.loads(html.unescape(actual[1]))
    return told["answer"], told["trouble"]
