"""The page of `hyjax.plot.explore` in a real browser: JupyterLab runs a notebook, a slider moves, the numbers must follow.

Needs Chromium and its driver (Debian's packages `chromium` and `chromium-driver`), and beside hyjax `pip install jupyterlab
selenium`, which no extra installs. By hand, from the root of the repository:

    python tools/browse.py --out screenshots

Writes a screenshot of each stage: the first gait, another, one that is lost, and the page that is shown without a kernel.
"""

import argparse
import contextlib
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import nbformat
from selenium import webdriver
from selenium.common.exceptions import TimeoutException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

CELL = """import jax, hyjax as hj
jax.config.update("jax_enable_x64", True)
hj.plot.explore(hj.models.rimless_wheel)"""
# Compilation, on a machine that does other work as well.
PATIENCE = 100


@contextlib.contextmanager
def lab(folder: pathlib.Path):
    """JupyterLab on a free port; gives its address with the token."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    options = ["--no-browser", "--allow-root", f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1"]
    options += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={folder}"]
    with open(folder.parent / "jupyterlab.log", "w") as log:
        server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={token}", timeout=5).close()
                break
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit((folder.parent / "jupyterlab.log").read_text())
            time.sleep(0.5)
        yield lambda name: f"http://127.0.0.1:{port}/lab/tree/{name}?token={token}&reset"
    finally:
        server.terminate()
        server.wait()


def browser() -> webdriver.Chrome:
    """Headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or sys.exit("Chromium is missing: apt-get install chromium.")
    for each in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1100,1000"):
        options.add_argument(each)
    driver = shutil.which("chromedriver") or sys.exit("Its driver is missing: apt-get install chromium-driver.")
    return webdriver.Chrome(options=options, service=Service(driver))


class Page:
    """What a reader sees of the notebook, and does with it."""

    def __init__(self, driver: webdriver.Chrome, out: pathlib.Path):
        self.driver, self.out = driver, out

    def text(self) -> str:
        """All outputs of the notebook."""
        return "\n".join(each.text for each in self.driver.find_elements(By.CSS_SELECTOR, ".jp-OutputArea-output"))

    def period(self) -> float:
        """The number in the page's row `period`."""
        return float(re.findall(r"period\s+(\d+\.\d+)", self.text())[0])

    def wait(self, ready, what: str) -> None:
        try:
            WebDriverWait(self.driver, PATIENCE, 0.2).until(lambda driver: ready())
        except TimeoutException:
            self.shot("failed")
            sys.exit(f"waited in vain for {what}; see {self.out}/failed.png; the outputs are:\n{self.text()}")

    def sliders(self) -> list:
        return self.driver.find_elements(By.CSS_SELECTOR, ".widget-slider .noUi-handle")

    def move(self, keys: str) -> None:
        """Send keys to the first slider."""
        self.sliders()[0].send_keys(keys)

    def press(self, held: str, key: str) -> None:
        """A key while another is held."""
        ActionChains(self.driver).key_down(held).send_keys(key).key_up(held).perform()

    def shot(self, name: str) -> None:
        time.sleep(1)
        self.driver.save_screenshot(str(self.out / f"{name}.png"))


def run(out: pathlib.Path) -> None:
    """All stages; an assertion fails where the page does not do what it should."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / "notebooks"
        root.mkdir()
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
        # Without a kernel's name JupyterLab asks for one.
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, root / "explore.ipynb")
        with lab(root) as address, contextlib.closing(browser()) as driver:
            page = Page(driver, out)
            driver.get(address("explore.ipynb"))
            editor = lambda: driver.find_elements(By.CSS_SELECTOR, ".jp-Notebook .jp-CodeCell .cm-content")
            page.wait(lambda: editor() and editor()[0].is_displayed(), "the notebook")
            ActionChains(driver).click(editor()[0]).perform()
            page.press(Keys.SHIFT, Keys.ENTER)
            page.wait(lambda: "period" in page.text() and page.sliders(), "the first gait")
            page.shot("first")
            first = page.period()

            began = time.monotonic()
            page.move(Keys.ARROW_RIGHT)
            page.wait(lambda: page.period() != first, "the gait to follow the slider")
            print(f"period {first} became {page.period()} in {time.monotonic() - began:.2f} s")
            page.shot("moved")

            page.move(Keys.HOME)  # a wheel with four spokes does not roll down this slope
            page.wait(lambda: "The page shows the last gait" in page.text(), "the gait to be lost")
            page.shot("lost")
            driver.find_element(By.CSS_SELECTOR, ".widget-button").click()
            page.wait(lambda: page.period() == first, "the first gait again")

            page.move(Keys.ARROW_RIGHT)
            page.wait(lambda: page.period() != first, "the gait to follow the slider")
            last = page.period()
            page.press(Keys.CONTROL, "s")
            stored = root / "explore.ipynb"
            page.wait(lambda: f"{last:.8f}" in stored.read_text(), "the file to be saved")
            kept = nbformat.read(stored, as_version=4)
            nbformat.write(kept, root / "without_kernel.ipynb")
            driver.get(address("without_kernel.ipynb"))
            page.wait(lambda: "period" in page.text(), "the page of the file")
            assert page.period() == last
            page.shot("without_kernel")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The page of hyjax.plot.explore in a browser.")
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("screenshots"), help="folder of the screenshots"
    )
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    run(arguments.out)
