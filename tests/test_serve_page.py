"""The page of the chat in Chromium.

Ask, stop, undo, why, save, upload, recall, forget, users, steps of plans, a lost server, a reload.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from turngraph.data.jsonlines import write_pool
from turngraph.data.scoring.confidence import FEATURES, Calibration, Confidence
from turngraph.data.types import NOT_IN_EVIDENCE
from turngraph.inference.api import load
from turngraph.inference.serve.app import make_app
from turngraph.inference.serve.serve_options import ServeOptions
from turngraph.inference.serve.service import Service
from turngraph.inference.serve.users import Users, add_user
from turngraph.model.running_batch import RunningBatch
from turngraph.tests.chatting import CONVERSATION
from turngraph.tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.slow  # they need a browser: `make test-slow` installs what drives it
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking",
]  # fmt: skip
Start = Callable[..., str]


@pytest.fixture
def start(graph_checkpoint: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a server over the same folder; its address."""
    qa, running = load(graph_checkpoint, device="cpu"), list[tuple[Any, threading.Thread]]()
    write_pool(tmp_path / "pool.jsonl", CONVERSATION.evidence)

    def run(users: Users | None = None, port: int = 0, **options: Any) -> str:
        given = {"evidence": (str(tmp_path / "pool.jsonl"),), "memory_dir": "is kept"}
        service = Service(qa, ServeOptions(**given | options), tmp_path / "users")
        app = make_app(service, users or Users(None), "localhost")
        config = uvicorn.Config(app, port=port, log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    def stop() -> None:
        for server, thread in running:
            server.should_exit = True
            thread.join()
        running.clear()

    run.stop = stop
    yield run
    stop()


@pytest.fixture
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


def opened(browser: Any, url: str, **settings: Any) -> Any:
    """A page that accepts every dialog and fails on an error in its console."""
    page = browser.new_page(**settings)
    page.set_default_timeout(1000 * PATIENCE)
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(url)
    return page


def ask(page: Any, question: str) -> str:
    page.wait_for_selector("#send:visible")
    number = page.locator("article").count() + 1
    page.fill("#question", question)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"article:nth-child({number}) .meta button")
    return page.locator(f"article:nth-child({number}) .answer").inner_text()


def returned(page: Any, question: str) -> None:
    """Wait until a question that is no turn stands in its field again."""
    page.wait_for_function(
        "(text) => document.querySelector('#question').value === text", arg=question
    )


DROP = """() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(["%"], "broken.pdf"));
    dataTransfer.items.add(new File(["Dune is a book."], "a.md"));
    const settings = { dataTransfer, bubbles: true, cancelable: true };
    document.querySelector("main").dispatchEvent(new DragEvent("drop", settings));
}"""


@pytest.mark.parametrize("width", [1280, 390])
def test_a_newcomer_walks_through_it(start: Start, browser: Any, width: int) -> None:
    page = opened(browser, start(), viewport={"width": width, "height": 800})
    page.wait_for_selector("#conversations li", state="attached")
    ask(page, "What is the capital of Peru?")
    second = ask(page, "Anna lives in Gdynia. And its population?")
    page.click("article:last-child summary")
    assert page.locator("article:last-child .passage").count() >= 2
    page.click("text=Why?")
    page.wait_for_selector("svg circle")
    assert page.locator("svg path").count() >= 1  # between passages that name one entity
    page.click("text=Undo")
    returned(page, "Anna lives in Gdynia. And its population?")
    assert page.locator("article").count() == 1
    assert ask(page, "Anna lives in Gdynia. And its population?") == second
    with page.expect_download() as saved:
        page.click("text=Save")
    assert len(json.loads(saved.value.path().read_text())["turns"]) == 2
    if width == 390:
        page.click("#panel-button")
        file = {"name": "a.md", "mimeType": "text/plain", "buffer": b"Dune is a book.\n"}
        page.set_input_files("#file", files=[file])
    else:
        page.evaluate(DROP)
        page.wait_for_selector("#status.bad >> text=broken.pdf")
    page.wait_for_selector("#documents li >> text=a.md")
    page.fill("#about", "Where does Anna live?")
    page.click("#recall button")
    page.wait_for_selector("#facts >> text=Gdynia")
    page.locator("#as-of-slider").focus()
    with page.expect_response(lambda reply: "as_of=" in reply.url) as asked:
        page.keyboard.press("Home")
    assert asked.value.ok
    page.check("#by-plan")
    page.click("#recall button")
    page.wait_for_selector("#steps li")
    page.click("#facts button >> nth=0")
    page.wait_for_selector("#status >> text=is forgotten")
    page.reload()
    page.wait_for_selector("article:nth-child(2)")
    ask(page, "Bob lives in Lima.")
    for key, num_articles in (("Escape", 3), ("Enter", 0)):
        page.evaluate("() => document.querySelector('#conversations .small').click()")
        page.wait_for_selector("#delete[open] #forget-too:not(:checked)")
        page.check("#forget-too")
        page.keyboard.press(key)
        page.wait_for_selector("#delete:not([open])", state="attached")
        page.wait_for_function(
            f"() => document.querySelectorAll('article').length === {num_articles}"
        )
    page.evaluate("() => document.querySelector('#about').value = 'Where does Bob live?'")
    page.evaluate("() => document.querySelector('#recall').requestSubmit()")
    page.wait_for_selector("#facts >> text=Nothing is remembered", state="attached")
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []


def test_users_are_apart(start: Start, browser: Any, tmp_path: Path) -> None:
    tokens = {name: add_user(tmp_path / "tokens", name) for name in ("ada", "bob")}
    url = start(Users(tmp_path / "tokens"))
    for name, token in tokens.items():
        page = opened(browser.new_context(), url)
        page.wait_for_selector("#login[open]")
        for wrong in ("no user's", "\u20ac"):  # no header can hold the second
            page.fill("#token", wrong)
            page.keyboard.press("Enter")
            page.wait_for_selector("#refused >> text=not known")
            assert page.evaluate("() => localStorage.length") == 0
        page.fill("#token", token)
        page.keyboard.press("Enter")
        page.wait_for_selector("#conversations li", state="attached")
        assert page.locator("article").count() == 0
        ask(page, f"I am {name}.")
        page.reload()
        page.wait_for_selector(f"article >> text=I am {name}.")


def test_a_stopped_answer_and_a_lost_server_leave_no_half_turn(
    start: Start, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = RunningBatch.step
    monkeypatch.setattr(RunningBatch, "step", lambda batch: time.sleep(0.5) or step(batch))
    url = start(max_new_tokens=3000)
    page = opened(browser, url)
    page.wait_for_selector("#conversations li", state="attached")
    page.fill("#question", "What is the capital of Peru?")
    page.keyboard.press("Enter")
    page.wait_for_selector("#stop:visible")
    page.click("#stop")
    returned(page, "What is the capital of Peru?")
    assert page.locator("article").count() == 0
    page.wait_for_selector("#send:visible")
    page.click("#send")
    page.wait_for_selector("#stop:visible")
    page.reload()
    returned(page, "What is the capital of Peru?")
    assert page.locator("article").count() == 0
    page.click("#send")
    page.wait_for_selector("#stop:visible")
    start.stop()
    time.sleep(0.5)
    assert start(port=int(url.rpartition(":")[2]), max_new_tokens=4) == url
    returned(page, "What is the capital of Peru?")
    assert page.locator("article").count() == 0
    monkeypatch.setattr(RunningBatch, "step", step)
    ask(page, "What is the capital of Peru?")


def test_a_question_comes_back_wherever_it_fails(
    start: Start, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened(browser, start(max_new_tokens=3000))
    page.wait_for_selector("#conversations li", state="attached")
    page.route("**/api/**", lambda route: route.abort())
    page.reload()  # while the server is away
    page.wait_for_selector("#status.bad")
    page.fill("#question", "What is the capital of Peru?")
    page.keyboard.press("Enter")
    returned(page, "What is the capital of Peru?")
    page.unroute("**/api/**")
    page.wait_for_selector("#send:visible")
    page.keyboard.press("Enter")
    page.wait_for_selector("article:nth-child(1) .meta button")
    step = RunningBatch.step
    monkeypatch.setattr(RunningBatch, "step", lambda batch: time.sleep(0.5) or step(batch))
    page.fill("#question", "And its population?")
    page.focus("#send")
    page.keyboard.press("Enter")
    page.wait_for_selector("#stop:focus")  # the focus is not lost with the button
    page.click("#new")
    page.wait_for_function("() => !document.querySelector('#turns').children.length")
    page.click("#stop")
    page.wait_for_selector("#send:visible")
    assert page.input_value("#question") == ""  # it belongs to another conversation
    page.click("#conversations .open >> text=Peru")
    returned(page, "And its population?")
    assert page.errors == []


def test_a_screen_reader_and_a_keyboard_keep_their_place(start: Start, browser: Any) -> None:
    page = opened(browser, start())
    page.wait_for_selector("#conversations li", state="attached")
    answer = ask(page, "What is the capital of Peru?")
    assert page.locator("#heard").inner_text().split() == f"Answer: {answer}".split()
    assert page.locator("[aria-live]:not([aria-live=off])").count() == 1  # steps of the memory
    files = [
        {"name": f"{name}.md", "mimeType": "text/plain", "buffer": b"Dune is a book."}
        for name in "ab"
    ]
    page.set_input_files("#file", files=files)
    page.wait_for_selector("#documents li:nth-child(2)")
    for left, held in (("b.md", "Remove b.md"), ("", None)):
        page.focus("#documents button")
        page.keyboard.press("Enter")
        page.wait_for_function(
            "(left) => document.querySelector('#documents').innerText.includes(left)"
            " && !document.querySelector('#documents').innerText.includes('a.md')"
            " && !!left === !!document.querySelector('#documents li')",
            arg=left,
        )
        focused = page.evaluate("() => document.activeElement.getAttribute('aria-label')")
        assert focused == held
    assert page.evaluate("() => document.activeElement.id") == "file"


def test_steps_of_a_plan_are_shown(start: Start, browser: Any) -> None:
    page = opened(browser, start(plan="rules"))
    page.wait_for_selector("#conversations li", state="attached")
    ask(page, "Anna lives in Gdynia.")
    ask(page, "Where does Anna live?")
    assert page.locator("article:last-child .steps li").count() >= 1
    assert page.errors == []


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_axe_finds_nothing_and_confidence_is_shown(
    start: Start, browser: Any, monkeypatch: pytest.MonkeyPatch, scheme: str, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    strict = Confidence(Calibration((0.0,) * len(FEATURES), 0.0, 50, 0.1), 0.9)
    monkeypatch.setattr("turngraph.inference.serve.service.read_confidence", lambda *_: strict)
    size = {"width": width, "height": 800}
    page = opened(browser, start(), color_scheme=scheme, bypass_csp=True, viewport=size)
    page.wait_for_selector("#conversations li", state="attached")
    ask(page, "What is the capital of Peru?")
    shown = page.locator("article:last-child").inner_text()
    for words in (NOT_IN_EVIDENCE, "confidence 50 %", "it would have said: "):
        assert words in shown
    page.click("article:last-child summary")
    page.click("text=Why?")
    page.wait_for_selector("svg circle")
    if width == 390:
        page.click("#panel-button")
    assert [found["id"] for found in Axe().run(page).response["violations"]] == []
