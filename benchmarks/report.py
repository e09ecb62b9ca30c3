"""How long the report page takes to be written, to open in a browser, and to follow its slider.

Run ``python -m benchmarks.report``; needs playwright and a chromium executable. Rows are those of
scikit-learn's breast cancer data with a little noise, their radii exact, for a model of 30 trees.
"""

import platform
import shutil
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_breast_cancer
from xgboost import XGBClassifier

import treeproof as tp

RESULTS = Path(__file__).parent / "results" / "report.md"
ARGUMENTS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]
REPEATS = 5
OPENED = "(e => e.loadEventEnd - e.startTime)(performance.getEntriesByType('navigation')[0])"
MOVED = """() => {
  const slider = document.getElementById("radius");
  const began = performance.now();
  for (let k = 1; k <= 10; k += 1) {
    slider.value = String(90 * k);
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    document.body.offsetHeight;
  }
  return (performance.now() - began) / 10;
}"""


def answers(n_rows: int, depth: int) -> tp.Results:
    """Exact radii of rows that are those of the data, moved a little."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    model = tp.load(XGBClassifier(n_estimators=30, max_depth=depth, n_jobs=1).fit(X, y))
    rng = np.random.default_rng(0)
    rows = X.sample(n_rows, replace=True, random_state=0)
    rows = rows + rng.normal(size=rows.shape) * 0.05 * X.std().to_numpy()
    return tp.radius(model, rows, None, tp.LInf(scale=X.std()), n_jobs=-1)


def measured(runs: list[tp.Results], folder: Path, browser: Any) -> tuple[float, ...]:
    """Seconds to write the page, its size in MB, ms to open it and for a step of the slider."""
    path = folder / "report.html"
    began = time.process_time()
    tp.write_report(runs, path, names=["one", "other"][: len(runs)])
    seconds = time.process_time() - began
    opened, moved = [], []
    for _ in range(REPEATS):
        page = browser.new_page()
        page.goto(path.as_uri())
        opened.append(page.evaluate(OPENED))
        moved.append(page.evaluate(MOVED))
        page.close()
    size = path.stat().st_size / 1e6
    return seconds, size, statistics.median(opened), statistics.median(moved)


def main() -> None:
    lines = [
        "| runs | rows of each | written, processor s | MB | open, ms | step of the slider, ms |",
        "|---|---|---|---|---|---|",
    ]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        executable = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        browser_version = browser.version
        for n_runs, n_rows in ((1, 1_000), (1, 10_000), (2, 10_000)):
            runs = [answers(n_rows, depth) for depth in (4, 2)[:n_runs]]
            written, size, opened, moved = measured(runs, Path(folder), browser)
            times = f"{opened:.0f} | {moved:.0f}"
            lines.append(f"| {n_runs} | {n_rows:,} | {written:.2f} | {size:.1f} | {times} |")
            print(lines[-1])
        browser.close()
    about = (
        "# The report page\n\n"
        "Median of 5 times on a machine of two cores that others used, too; opening ends when the"
        " page is laid out and its table is filled.\n\n"
        f"treeproof {version('treeproof')}, Chromium {browser_version}, Python"
        f" {platform.python_version()}, {platform.machine()}.\n\n"
    )
    RESULTS.write_text(about + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
