"""What a person sees: the shop and the admin in Chromium, with a worker that runs beside them."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from django.db import connection
from django.urls import reverse
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from django_pgqueue.models import Worker
from example_project.database import database_url
from example_project.shop.models import Order
from tests.support.waiting import SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.live_server_helper import LiveServer
    from selenium.webdriver.remote.webelement import WebElement

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "tests" / "output"
BROWSER, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--window-size=1280,900",
    "--force-device-scale-factor=1",
]

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240), pytest.mark.django_db(transaction=True)]


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    missing = [str(program) for program in (BROWSER, DRIVER) if not program.exists()]
    if missing:
        reason = f"needs {' and '.join(missing)} (Debian: apt install chromium chromium-driver)"
        if os.environ.get("CI_REQUIRE_BROWSER") == "1":
            pytest.fail(f"CI_REQUIRE_BROWSER is set, and this test {reason}")
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in [*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


class Page:
    """One person's browser window."""

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def open(self, path: str) -> None:
        """Go to a page, and be there: on a busy machine the driver may return before the page is whole."""
        self.driver.execute_script("window.isOld = true")
        self.driver.get(urllib.parse.urljoin(self.url, path))
        self._arrive(path)

    def find(self, what: str, by: str = By.CSS_SELECTOR) -> WebElement:
        return WebDriverWait(self.driver, SECONDS).until(lambda driver: driver.find_element(by, what))

    def press(self, text: str) -> None:
        """Press a button that leads to another page, and be there."""
        self.driver.execute_script("window.isOld = true")
        self.find(f"//button[normalize-space()='{text}'] | //input[@value='{text}']", By.XPATH).click()
        self._arrive(f"the page after {text!r}")

    def _arrive(self, where: str) -> None:
        there = "return !window.isOld && document.readyState === 'complete'"
        wait_until(lambda: self.driver.execute_script(there), where)

    def shows(self, *texts: str) -> None:
        """Wait until the page shows all of them, in this order."""

        def shown() -> bool:
            place = 0
            for text in texts:
                place = self.text.find(text, place)
                if place < 0:
                    return False
            return True

        try:
            wait_until(shown, f"the page shows {texts}")
        except AssertionError as error:
            self.save("failed")
            raise AssertionError(f"{error}, but:\n{self.text}") from None

    @property
    def text(self) -> str:
        return str(self.driver.execute_script("return document.body.innerText"))

    def job(self, label: str) -> list[str]:
        """The cells of a job's row: label, status, attempts, what it says, id."""
        script = """
            const rows = [...document.querySelectorAll(".jobs tr")];
            const texts = rows.map(row => [...row.cells].map(cell => cell.innerText));
            return texts.find(row => row[0] === arguments[0]) || [];
        """
        return [str(cell) for cell in self.driver.execute_script(script, label)]

    def job_becomes(self, label: str, status: str) -> list[str]:
        def row() -> list[str]:
            cells = self.job(label)
            return cells if cells[1:2] == [status] else []

        return wait_until(row, f"the job {label!r} is {status}")

    def status_in_admin(self) -> str:
        """The status of the first row of a list in the admin, if it can be seen without scrolling."""
        script = """
            const list = document.querySelector("#result_list");
            const headers = list ? [...list.tHead.rows[0].cells].map(cell => cell.innerText.trim().toUpperCase()) : [];
            const cell = headers.includes("STATUS") && list.tBodies[0].rows[0].cells[headers.indexOf("STATUS")];
            const room = list && list.closest(".results").getBoundingClientRect();
            return cell && cell.getBoundingClientRect().right <= room.right ? cell.innerText : "";
        """
        return wait_until(lambda: str(self.driver.execute_script(script)), "the list shows a status")

    def save(self, name: str, width: int = 1200, *, dark: bool = False) -> None:
        """A screenshot of the whole page, for people to look at."""
        scheme = "dark" if dark else "light"
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        viewport = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", viewport)
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        OUTPUT.mkdir(exist_ok=True)
        (OUTPUT / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """What the browser's console has to say about the page."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]

    def unlabelled(self) -> list[str]:
        """Fields that a screen reader could not name."""
        script = """
            const fields = [...document.querySelectorAll("input:not([type=hidden])")];
            return fields.filter(field => !field.labels.length).map(field => field.outerHTML);
        """
        return [str(field) for field in self.driver.execute_script(script)]


@pytest.fixture
def page(chromium: webdriver.Chrome, live_server: LiveServer) -> Iterator[Page]:
    page = Page(chromium, live_server.url)
    yield page
    assert page.complaints() == []
    chromium.get("about:blank")  # polls no more


@pytest.fixture
def worker(live_server: LiveServer, tmp_path: Path) -> Iterator[None]:
    """A real worker of the example project, on the tests' database."""
    url = urllib.parse.urlsplit(database_url("test"))._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environment = {
        **os.environ,
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "PGQUEUE_EXAMPLE_HOME": str(tmp_path / "example"),
    }
    with (tmp_path / "worker").open("w+") as output:
        command = [sys.executable, "-m", "django", "qworker"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: Worker.objects.exists() or process.poll() is not None, "the worker is there")
            yield
        finally:
            process.terminate()
            code = process.wait(SECONDS)
            output.seek(0)
            assert code == 0, output.read()


@pytest.fixture
def shop(page: Page) -> Page:
    from django.core.management import call_command

    call_command("qbind", verbosity=0)
    call_command("fill_shop", verbosity=0)
    page.open("/")
    return page


def fill_in_an_order(page: Page) -> None:
    page.open("/")
    page.find("input[type=number]").send_keys("2")


def place_an_order(page: Page) -> Order:
    fill_in_an_order(page)
    page.press("Place the order")
    return Order.objects.get(pk=page.find("h1").text.removeprefix("Order "))


def test_an_order_is_placed_and_its_receipt_arrives(shop: Page, worker: None) -> None:
    shop.save("shop")
    shop.save("shop-dark", dark=True)
    shop.save("shop-narrow", 400)
    assert shop.unlabelled() == []

    order = place_an_order(shop)
    shop.shows(f"Order {order.pk}", "HARBOUR TEA", f"Receipt for order {order.pk}")

    shop.press("Book the courier")
    assert shop.job_becomes("Book courier", "retrying")[3].startswith("The courier's line is busy")
    shop.save("order-retrying")
    shop.press("Remind me in one minute")
    shop.press("Price it in other currencies")
    shop.press("Redeem an old voucher")
    assert "USD" in shop.job_becomes("Quote currencies", "done")[3]
    assert "has expired" in shop.job_becomes("Redeem voucher", "failed")[3]
    assert shop.job_becomes("Book courier", "done")[2] == "3"
    assert shop.job_becomes("Send reminder", "scheduled")[2] == "0"
    shop.save("order")
    shop.save("order-dark", dark=True)
    shop.save("order-narrow", 400)

    shop.open(reverse("shop:orders"))
    shop.shows("Recent orders", f"Order {order.pk}", "sent")
    shop.save("orders")


def test_the_admin_shows_the_job_as_scheduled_and_then_in_the_history(
    shop: Page, worker: None, django_user_model: type
) -> None:
    django_user_model.objects.create_superuser("admin", password="secret")  # type: ignore[attr-defined]
    place_an_order(shop)
    shop.press("Remind me in one minute")
    reminder = shop.job_becomes("Send reminder", "scheduled")[4]
    receipt = shop.job_becomes("Send receipt", "done")[4]

    shop.open(f"{reverse('admin:pgqueue_message_changelist')}?q={reminder}")
    shop.find("#id_username").send_keys("admin")
    shop.find("#id_password").send_keys("secret")
    shop.press("Log in")
    shop.shows(reminder, "send_reminder")
    assert shop.status_in_admin() == "scheduled"
    shop.save("admin-scheduled", 1600)

    shop.open(f"{reverse('admin:pgqueue_attempt_changelist')}?q={receipt}")
    shop.shows("send_receipt")
    assert shop.status_in_admin() == "succeeded"
    shop.save("admin-history", 1600)

    shop.open(reverse("admin:pgqueue_message_changelist"))
    shop.shows("send_reminder")
    shop.save("admin-messages", 1600)
    shop.open(reverse("admin:pgqueue_attempt_changelist"))
    shop.shows("send_receipt")
    shop.save("admin-attempts", 1600)


def test_a_changed_mind_leaves_nothing(shop: Page) -> None:
    before = Order.objects.count()
    fill_in_an_order(shop)
    shop.press("Place it, then roll back")
    shop.shows("You changed your mind", "does not exist", "does not exist")
    shop.save("changed-mind")
    assert Order.objects.count() == before


def test_the_warehouse_picks_the_next_slip(shop: Page) -> None:
    shop.open(reverse("shop:warehouse"))
    shop.save("warehouse")
    oldest = Order.objects.last()
    assert oldest
    shop.press("Pick it and pack it")
    shop.shows(f"Order {oldest.pk} is packed", "Parcels", f"Order {oldest.pk}")
    shop.press("Pick it and put it back for 30 seconds")
    shop.shows("comes back in 30 seconds")
    shop.press("Pick it and report it damaged")
    shop.shows("has failed")
    shop.save("warehouse-picked")


def test_a_mistake_in_the_form_is_told_beside_its_field(shop: Page) -> None:
    shop.find("#id_email").clear()
    shop.find("#id_email").send_keys("nobody")
    shop.press("Place the order")
    shop.shows("Enter a valid email address.")
    shop.save("mistake")
    shop.complaints()  # the browser calls the answer 422 an error; it is what we wanted


def test_the_page_shows_its_code(shop: Page) -> None:
    shop.find("summary").click()
    shop.shows("def place_order", "with transaction.atomic():", "send_receipt.enqueue(order.pk)")
    shop.save("code")
