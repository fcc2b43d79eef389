"""The web page in Chromium: a real server, a real file, and what people do on it."""

import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

import backscroll
import browser as looking
from backscroll.errors import LLMUnavailableError
from backscroll.memory import Memory
from backscroll.server.keys import add_key, remove_key
from backscroll.types import Reply, Usage
from browser import Visit
from serving import served

PAGE = Path(backscroll.__file__).parent / "server" / "page"
USER, LONG = "alice", "endless"
QUESTION = "Which van takes the butter?"
FLEET = [
    ("user", "Van 5 is the refrigerated one, it takes the butter and the cream."),
    ("assistant", "Noted: van 5 is refrigerated and takes the butter."),
    ("user", "And the tunnel is never to be used, the tolls are too high."),
    ("assistant", "Then every route avoids the tunnel."),
]
ATTACKS = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    '"><svg onload=alert(3)>',
    "</textarea><iframe srcdoc='<script>parent.alert(4)</script>'>",
    '```"><b onclick=alert(5)>\n<img src=x onerror=alert(6)>\n```',
    "`<img src=x onerror=alert(7)>` **<a href=javascript:alert(8)>go</a>** [go](javascript:alert(9))",
    "{{constructor.constructor('alert(10)')()}} ${alert(11)} <style>*{display:none}</style>",
]


class Model:
    """Answers as it is told to: each step is a text, or an error."""

    model = None

    def __init__(self) -> None:
        self.steps: list[str | Exception] = []
        self.asked: list[list[dict]] = []
        self.pause_seconds = 0.0  # in front of each word
        self.first, self.go = threading.Event(), threading.Event()  # before the first word, and before the third
        self.first.set()
        self.go.set()

    def complete(self, messages, options=None) -> Reply:
        return Reply({"role": "assistant", "content": "".join(self.stream(messages))}, "stop")

    def stream(self, messages, options=None):
        self.asked.append(messages)
        self.first.wait(20)
        said = self.steps.pop(0) if self.steps else "Van 5 takes the butter, as you said."
        if isinstance(said, Exception):
            yield "It begins "
            raise said
        for number, word in enumerate(re.findall(r"\S+\s*", said)):
            if number == 2:
                self.go.wait(20)
            time.sleep(self.pause_seconds)
            yield word
        yield Reply({"role": "assistant", "content": said}, "stop", Usage(40, 6), "small")

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with looking.chromium() as browser:
        yield browser


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    """A store with a short thread, and one with a thread of 1,200 lines on top; made once, each test has a copy."""
    folder = tmp_path_factory.mktemp("stores")
    fleet = [{"role": role, "content": text, "id": f"fleet-{i}"} for i, (role, text) in enumerate(FLEET)]
    many = [
        {"role": ("user", "assistant")[i % 2], "content": f"Line {i} of many, about stop {i}."} for i in range(1200)
    ]
    threads = {"empty": {}, "short": {"fleet": fleet}, "long": {"fleet": fleet, LONG: many}}
    for name, lines in threads.items():
        with backscroll.open(folder / name, embedder="hashing") as memory:
            for thread, messages in lines.items():
                memory.thread(thread, user=USER).append(messages)
            memory.min_similarity(memory.settings)  # what every first context of a store works out
    return {name: folder / name for name in threads}


def opened(stores: dict[str, Path], which: str, folder: Path, model: Model | None) -> Memory:
    path = shutil.copy(stores[which], folder / "chat.db")
    return backscroll.open(path, embedder="hashing", llm=model)


@pytest.fixture
def memory(stores, tmp_path, model, request) -> Iterator[Memory]:
    with opened(stores, "long" if "long" in request.fixturenames else "short", tmp_path, model) as memory:
        yield memory


@pytest.fixture
def long(memory) -> Memory:
    """The memory with the long thread in it."""
    return memory


@pytest.fixture
def url(memory) -> Iterator[str]:
    with served(memory, max_tokens=1000) as server:
        yield server.url


@pytest.fixture
def visit(chromium, url) -> Iterator[Visit]:
    visiting = Visit(chromium, url)
    yield visiting
    visiting.close()


def at(thread: str, position: int | None = None, user: str = USER) -> str:
    return str(httpx.QueryParams({"user": user, "thread": thread, **({} if position is None else {"at": position})}))


def told(page: Page) -> list[tuple[int, str]]:
    """The stored lines on the page."""
    lines = page.locator("#history article[data-position]")
    return [(int(line.get_attribute("data-position")), line.locator(".text").inner_text()) for line in lines.all()]


def positions(page: Page) -> list[int]:
    return page.evaluate(
        "[...document.querySelectorAll('#history article')].map((one) => Number(one.dataset.position))"
    )


def write(page: Page, text: str) -> None:
    page.fill("#prompt", text)
    page.press("#prompt", "Enter")


def replied(page: Page, text: str) -> None:
    """Wait until a reply is stored and shown as a line."""
    expect(page.locator("#history article.assistant[data-position] .text").last).to_have_text(text)
    expect(page.locator("#history .pending")).to_have_count(0)


# Threads, history, search


def test_the_newest_thread_opens_with_its_newest_lines(visit, long):
    page = visit.open(f"user={USER}")
    assert page.locator(".thread").count() == 2
    assert page.locator(".thread[aria-current]").inner_text().startswith("Line 0 of many")
    assert told(page)[-1] == (1199, "Line 1199 of many, about stop 1199.")
    expect(page.locator("#history article").last).to_be_in_viewport()
    assert "1,200 lines" in page.locator("#subtitle").inner_text()


def test_the_whole_history_scrolls_past_and_the_page_stays_small(visit, long):
    page = visit.open(at(LONG))
    seen: set[int] = set()
    for _ in range(400):
        here = positions(page)
        assert len(here) <= 300
        assert here == list(range(here[0], here[-1] + 1))
        seen.update(here)
        if here[0] == 0:
            break
        page.evaluate("document.getElementById('history').scrollTop -= 2500")
        page.wait_for_timeout(20)
    assert seen == set(range(1200))
    page.click("#to-latest")
    expect(page.locator("#history article[data-position='1199']")).to_be_in_viewport()


def test_what_one_reads_stays_where_it_is_while_older_lines_are_loaded(visit, long):
    page = visit.open(at(LONG))
    page.evaluate("document.getElementById('history').scrollTop = 1200")
    top = "(at) => document.querySelector(`[data-position='${at}']`).getBoundingClientRect().top"
    page.wait_for_timeout(200)
    here = page.evaluate("""() => {
      const top = document.getElementById('history').getBoundingClientRect().top;
      const lines = [...document.querySelectorAll('#history article')];
      return Number(lines.find((one) => one.getBoundingClientRect().top > top).dataset.position);
    }""")
    before, first = page.evaluate(top, here), positions(page)[0]
    page.evaluate("document.getElementById('history').scrollTop -= 400")
    page.wait_for_function(
        "(first) => Number(document.querySelector('#history article').dataset.position) < first", arg=first
    )
    assert abs(page.evaluate(top, here) - (before + 400)) <= 2


def test_everything_ever_said_is_found_and_a_click_shows_it_in_its_place(visit, long):
    page = visit.open(at(LONG))
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("/")
    page.keyboard.type("the tunnel tolls")
    page.locator(".hit", has_text="tunnel is never to be used").click()
    line = page.locator("#history article[data-position='2']")
    expect(line).to_be_focused()
    expect(line).to_be_in_viewport()
    assert page.locator(".hit mark").first.inner_text().lower() in ("the", "tunnel", "tolls")
    assert told(page) == list(enumerate(text for _, text in FLEET))
    page.click("#search")
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()


def test_a_text_of_many_pages_is_shown_whole_when_one_asks_for_it(visit, memory):
    text = "\n".join(f"Row {i} of a pasted table" for i in range(2000))
    memory.thread("pasted", user=USER).append({"role": "user", "content": text})
    page = visit.open(at("pasted"))
    line = page.locator("#history article .text")
    assert "Row 1999" not in line.inner_text()
    page.click(f"text=Show all {len(text):,} characters")
    assert line.inner_text() == text


def test_code_and_emphasis_are_shown_line_by_line_and_a_very_long_line_stays_plain(visit, memory):
    marks = ["`one` and **two**", "`a ``b` **c * d** `e", "f` **g", "h**", "``i ` j`` **k**"]
    lines = [*marks, "`l` **m** " + "x" * 9_000, "`n` **o** " + "x" * 10_000, "`p` **q**"]
    memory.thread("marked", user=USER).append({"role": "user", "content": "\n".join(lines)})
    page = visit.open(at("marked"))
    text = page.locator("#history article .text")
    assert text.locator("code").all_inner_texts() == ["one", "a ``b", "i ` j", "l", "p"]
    assert text.locator("strong").all_inner_texts() == ["two", "k", "m", "q"]
    assert text.inner_text().split("\n")[-2] == lines[-2]


def test_a_line_deep_in_a_long_thread_opens_by_its_address(visit, long):
    page = visit.open(at(LONG, 321))
    expect(page.locator("#history article[data-position='321']")).to_be_in_viewport()
    page.locator("#history").press("Home")
    expect(page.locator("#history article[data-position='0']")).to_be_in_viewport()


def test_a_user_is_chosen_and_their_threads_alone_are_listed(visit, memory):
    memory.thread("notes", user="bob").append({"role": "user", "content": "Bob's own line."})
    page = visit.open(f"user={USER}")
    page.select_option("#user", "bob")
    page.locator(".thread", has_text="Bob's own line.").click()
    expect(page.locator("#history article .text")).to_have_text(["Bob's own line."])
    assert page.locator(".thread").count() == 1


# The context as a picture


def context(url: str, thread: str, **asked) -> dict:
    answer = httpx.post(f"{url}/api/context", params={"user": USER, "thread": thread}, json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def legend(page: Page) -> dict[str, int]:
    rows = page.locator(".legend li").all()
    return {
        row.locator(".name").inner_text(): int(row.locator(".figure-cell").inner_text().replace(",", ""))
        for row in rows
    }


def test_the_picture_shows_every_part_and_they_add_up_to_the_budget(visit, long, url):
    page = visit.open(at(LONG))
    page.fill("#prompt", QUESTION)
    visit.settled()
    parts = legend(page)
    made = context(url, LONG, prompt=QUESTION, max_tokens=1000, now="2026-11-21T00:00:00Z")
    assert {part: parts[part] for part in made["report"]["parts"]} == made["report"]["parts"]
    assert sum(parts.values()) == 1000
    assert page.locator(".total").inner_text().startswith(f"{made['tokens']:,} of 1,000 tokens")
    widths = page.evaluate("""Object.fromEntries([...document.querySelectorAll('.shown > .budget-bar .part')]
      .map((one) => [one.classList[1], Number(one.querySelector('rect').getAttribute('width')) / 400]))""")
    assert widths == {
        part: pytest.approx(tokens / 1000, abs=1e-3) for part, tokens in parts.items() if tokens and part != "free"
    }


def test_a_recalled_block_shows_its_similarity_and_date_and_leads_to_its_line(visit, long, url):
    page = visit.open(at(LONG))
    page.fill("#prompt", QUESTION)
    visit.settled()
    block = page.locator(".block", has_text="Van 5 is the refrigerated one")
    made = context(url, LONG, prompt=QUESTION, max_tokens=1000)
    [entry] = [e for e in made["report"]["entries"] if e["part"] == "recalled" and e["source"]["id"] == "fleet-0"]
    assert f"{entry['similarity']:.2f}" in block.inner_text()
    assert time.strftime("%b ") in block.inner_text()
    block.click()
    expect(page.locator("#history article[data-position='0']")).to_be_focused()
    assert page.locator("#title").inner_text() == FLEET[0][1]


def test_lines_of_the_history_are_marked_by_the_part_that_holds_them(visit, long, url):
    page = visit.open(at(LONG))
    page.fill("#prompt", QUESTION)
    visit.settled()
    entries = context(url, LONG, prompt=QUESTION, max_tokens=1000)["report"]["entries"]
    window = {e["source"]["position"] for e in entries if e["included"] and e["part"] == "window"}
    inside = "[...document.querySelectorAll('[data-part=window]')].map((one) => Number(one.dataset.position))"
    marked = page.evaluate(inside)
    assert set(marked) == window & set(positions(page))
    assert window


def test_the_slider_and_the_preset_show_at_once_what_would_change(visit, long, url):
    page = visit.open(at(LONG))
    page.fill("#prompt", QUESTION)
    visit.settled()
    page.locator("#budget").press("ArrowLeft")
    for _ in range(60):
        page.locator("#budget").press("ArrowLeft")
    visit.settled()
    smaller = int(page.input_value("#budget-exact"))
    assert smaller < 1000
    asked = {"prompt": QUESTION, "now": "2026-11-21T00:00:00Z"}
    less, usual = context(url, LONG, max_tokens=smaller, **asked), context(url, LONG, max_tokens=1000, **asked)
    assert legend(page)["window"] == less["report"]["parts"]["window"]
    went = {s["id"] for s in usual["sources"]} - {s["id"] for s in less["sources"]}
    assert f"{len(went)} go out" in page.locator("[data-name=change] summary").inner_text()
    page.select_option("#preset", "sliding_window")
    visit.settled()
    assert legend(page)["recalled"] == 0
    assert "sliding_window is a preview" in page.locator(".controls").inner_text()
    page.click("text=Back to the server's")
    visit.settled()
    assert page.locator("[data-name=change]").count() == 0
    assert page.input_value("#preset") == "backscroll"


def test_what_was_left_out_is_named_with_the_reason(visit, long, url):
    page = visit.open(at(LONG))
    out = page.locator("[data-name=out]")
    out.locator("summary").click()
    entries = [e for e in context(url, LONG, max_tokens=1000)["report"]["entries"] if not e["included"]]
    assert entries
    assert out.locator(".entry").count() == len(entries)
    assert entries[0]["why"] in out.inner_text()


def test_a_budget_that_is_too_small_says_what_is_needed_and_sets_it(visit, long):
    page = visit.open(at(LONG))
    page.fill("#prompt", "A prompt of some words that need more than ten tokens, as one sees")
    page.fill("#budget-exact", "10")
    page.press("#budget-exact", "Enter")
    expect(page.locator(".shown .notice")).to_contain_text("It does not fit")
    page.click(".shown .notice button")
    visit.settled()
    assert "of" in page.locator(".total").inner_text()


def test_the_messages_are_shown_as_they_are_sent(visit, url):
    page = visit.open(at("fleet"))
    page.fill("#prompt", QUESTION)
    visit.settled()
    page.click("#tab-sent")
    shown = page.locator("#sent pre").all_inner_texts()
    assert shown[0] == FLEET[0][1]
    assert shown[-1].endswith(QUESTION)


# Chatting


def test_a_reply_streams_and_is_stored_with_its_prompt(visit, model, memory):
    page = visit.open(at("fleet"))
    model.go.clear()
    write(page, QUESTION)
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    assert page.locator("#history .pending.user .text").inner_text() == QUESTION
    assert page.locator("#send").get_attribute("aria-label") == "Stop the reply"
    model.go.set()
    replied(page, "Van 5 takes the butter, as you said.")
    assert told(page)[-2:] == [(4, QUESTION), (5, "Van 5 takes the butter, as you said.")]
    assert [line.message.text for line in memory.thread("fleet", user=USER).lines(4)] == [QUESTION, told(page)[-1][1]]
    expect(page.locator("#told")).to_contain_text("Van 5 takes the butter")
    expect(page.locator("#prompt")).to_have_value("")


def test_a_new_chat_begins_with_a_line_and_is_listed(visit, memory):
    page = visit.open(at("fleet"))
    page.keyboard.press("Alt+n")
    expect(page.locator("#title")).to_have_text("New chat")
    write(page, "Good morning!")
    replied(page, "Van 5 takes the butter, as you said.")
    assert page.locator(".thread[aria-current] .name").inner_text() == "Good morning!"
    assert len(memory.threads(USER)) == 2


def test_a_reply_that_is_stopped_stays_as_far_as_it_came(visit, model, memory):
    model.steps, model.pause_seconds = ["and on " * 5000], 0.005
    page = visit.open(at("fleet"))
    write(page, QUESTION)
    expect(page.locator("#history .pending.assistant .text")).to_contain_text("and on and on")
    page.click("#send")
    expect(page.locator("#history article.assistant .badge", has_text="stopped")).to_have_count(1)
    partial = memory.thread("fleet", user=USER).lines()[-1].message
    assert partial.metadata["partial"]
    assert partial.text.startswith("and on and on")
    assert told(page)[-1][1] == partial.text.strip()


def test_a_reply_goes_on_while_one_looks_at_another_thread(visit, long, model):
    page = visit.open(at("fleet"))
    model.go.clear()
    write(page, QUESTION)
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    page.locator(".thread", has_text="Line 0 of many").click()
    expect(page.locator("#history article .text").last).to_have_text("Line 1199 of many, about stop 1199.")
    expect(page.locator("#send")).to_have_attribute("aria-label", "Send")
    page.locator(".thread", has_text="Van 5 is the refrigerated").click()
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    expect(page.locator("#send")).to_have_attribute("aria-label", "Stop the reply")
    model.go.set()
    replied(page, "Van 5 takes the butter, as you said.")
    assert positions(page) == [0, 1, 2, 3, 4, 5]


def test_a_reply_goes_on_while_one_reads_what_lies_far_above_it(visit, long, model):
    page = visit.open(at(LONG))
    model.go.clear()
    write(page, QUESTION)
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    page.locator("#history").press("Home")
    expect(page.locator("#history article[data-position='0']")).to_be_in_viewport()
    page.click("#to-latest")
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    expect(page.locator("#history .pending.assistant")).to_be_in_viewport()
    page.locator("#history").press("Home")
    expect(page.locator("#history article[data-position='0']")).to_be_in_viewport()
    model.go.set()
    expect(page.locator("#send")).to_have_attribute("aria-label", "Send")
    visit.settled()
    expect(page.locator("#history article[data-position='0']")).to_be_in_viewport()
    page.click("#to-latest")
    replied(page, "Van 5 takes the butter, as you said.")
    assert positions(page)[-1] == 1201


def test_a_draft_is_still_there_when_an_edit_is_left(visit):
    page = visit.open(at("fleet"))
    page.fill("#prompt", "A draft")
    line = page.locator("#history article[data-position='2']")
    line.hover()
    line.locator("[data-act=edit]").click()
    expect(page.locator("#prompt")).to_have_value(FLEET[2][1])
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).to_have_value("A draft")


def test_a_reply_that_is_stopped_before_its_first_word_gives_the_prompt_back(visit, model, memory):
    model.steps = ["Too late."]
    page = visit.open(at("fleet"))
    model.first.clear()
    write(page, QUESTION)
    expect(page.locator("#history .pending.user .text")).to_have_text(QUESTION)
    page.keyboard.press("Escape")
    expect(page.locator("#prompt")).to_have_value(QUESTION)
    model.first.set()
    assert len(memory.thread("fleet", user=USER).lines()) == 4


def test_a_reply_that_fails_says_why_and_gives_the_prompt_back(visit, model, memory):
    model.steps = [LLMUnavailableError("the model is not running")]
    page = visit.open(at("fleet"))
    write(page, QUESTION)
    expect(page.locator(".toast")).to_contain_text("the model is not running")
    expect(page.locator("#prompt")).to_have_value(QUESTION)
    assert len(memory.thread("fleet", user=USER).lines()) == 4
    page.press("#prompt", "Enter")
    replied(page, "Van 5 takes the butter, as you said.")


def test_a_connection_that_breaks_during_a_reply_gives_the_prompt_back(visit, model, memory):
    page = visit.open(at("fleet"))
    model.go.clear()
    write(page, QUESTION)
    expect(page.locator("#history .pending.assistant .text")).to_have_text("Van 5")
    page.route("**/api/**", lambda route: route.abort())
    page.evaluate("window.stop()")  # ends what is under way
    expect(page.locator("#prompt")).to_have_value(QUESTION)
    expect(page.locator("#history .pending")).to_have_count(0)
    model.go.set()


def test_another_reply_is_a_branch_and_the_first_stays(visit, model, memory):
    model.steps = ["The first reply.", "The second reply."]
    page = visit.open(at("fleet"))
    write(page, QUESTION)
    replied(page, "The first reply.")
    last = page.locator("#history article.assistant").last
    last.hover()
    last.locator("[data-act=retry]").click()
    replied(page, "The second reply.")
    assert [text for _, text in told(page)][-2:] == [QUESTION, "The second reply."]
    assert [line.message.text for line in memory.thread("fleet~0", user=USER).lines()][-1] == "The first reply."
    page.locator(".thread.branch", has_text="Before branching").click()
    expect(page.locator("#history article .text").last).to_have_text("The first reply.")


def test_an_edited_message_makes_a_branch_and_the_old_lines_stay(visit, model, memory):
    model.steps = ["It is number five.", "It is number seven."]
    page = visit.open(at("fleet"))
    write(page, QUESTION)
    replied(page, "It is number five.")
    page.press("#prompt", "ArrowUp")
    expect(page.locator("#prompt")).to_have_value(QUESTION)
    expect(page.locator("#hint")).to_contain_text("Editing line 4")
    write(page, "Which van takes the flour?")
    replied(page, "It is number seven.")
    assert [text for _, text in told(page)][-2:] == ["Which van takes the flour?", "It is number seven."]
    old = [line.message.text for line in memory.thread("fleet~0", user=USER).lines()]
    assert old[-2:] == [QUESTION, "It is number five."]
    assert model.asked[-1][-1]["content"].endswith("Which van takes the flour?")


def test_a_pinned_line_is_in_every_context(visit, memory):
    page = visit.open(at("fleet"))
    line = page.locator("#history article[data-position='2']")
    line.hover()
    line.locator("[data-act=pin]").click()
    expect(line.locator(".badge")).to_have_text("pinned")
    expect(line.locator("[data-act=pin]")).to_be_focused()
    assert [one.position for one in memory.store.pinned(memory.thread("fleet", user=USER).key)] == [2]


def test_a_thread_is_deleted_only_after_a_yes(visit, memory):
    page = visit.open(at("fleet"))
    page.click("#delete")
    page.click("#sure-dialog >> text=Keep")
    assert len(memory.threads(USER)) == 1
    page.click("#delete")
    page.locator("#sure-dialog button", has_text="Delete").click()
    expect(page.locator("#thread-list")).to_contain_text("No threads yet.")
    assert memory.threads(USER) == []


def test_a_thread_is_exported_as_lines(visit):
    page = visit.open(at("fleet"))
    with page.expect_download() as download:
        page.click("#export")
    assert download.value.suggested_filename == "fleet.jsonl"
    lines = Path(download.value.path()).read_text("utf-8").splitlines()
    assert len(lines) == len(FLEET)


def test_the_figures_over_the_chat_are_those_of_the_replies(visit, url):
    page = visit.open(at("fleet"))
    for text in (QUESTION, "And the cream?", "And the eggs?"):
        write(page, text)
        expect(page.locator("#history .pending")).to_have_count(0)
        expect(page.locator("#history article .text", has_text=text)).to_have_count(1)
        expect(page.locator("#send")).to_have_attribute("aria-label", "Send")
    page.click("#tab-time")
    turns = httpx.get(f"{url}/api/turns", params={"user": USER, "thread": "fleet"}).json()["items"]
    sent = [turn["tokens_sent"] for turn in turns if turn["tokens_sent"]]
    assert len(sent) == 3
    chart = page.locator("#time svg.chart").first
    expect(chart).to_have_attribute(
        "aria-label", re.compile(rf"full history: {turns[-1]['tokens_full']} tokens at the end")
    )
    page.locator("#time details").first.locator("summary").click()
    table = page.locator("#time table").first
    assert table.locator("tbody tr").last.locator("td").all_inner_texts() == [
        str(turns[-1]["tokens_full"]),
        str(sent[-1]),
    ]
    assert page.locator("#time svg.chart").count() == 2
    write(page, "And the flour?")
    expect(table.locator("tbody tr")).to_have_count(len(turns) + 1)
    expect(table).to_be_visible()  # drawn anew, and open as it was


def test_without_a_model_the_page_looks_and_says_how_to_connect_one(chromium, stores, tmp_path):
    with opened(stores, "short", tmp_path, None) as memory, served(memory) as server:
        visiting = Visit(chromium, server.url)
        page = visiting.open(at("fleet"))
        expect(page.locator("#no-model")).to_contain_text("backscroll serve --llm openai:MODEL")
        write(page, QUESTION)
        visiting.settled()
        assert legend(page)["prompt"] > 0
        assert len(memory.thread("fleet", user=USER).lines()) == 4
        page.click("#send")
        expect(page.locator("#history article .text").last).to_have_text(QUESTION)
        assert len(memory.thread("fleet", user=USER).lines()) == 5
        visiting.close()


def test_an_empty_store_says_how_to_begin(chromium, stores, tmp_path):
    with opened(stores, "empty", tmp_path, Model()) as memory, served(memory) as server:
        visiting = Visit(chromium, server.url)
        page = visiting.open()
        expect(page.locator(".welcome")).to_contain_text("backscroll import FILE")
        page.click("text=Begin a chat")
        write(page, "Hello?")
        replied(page, "Van 5 takes the butter, as you said.")
        visiting.close()


def test_a_server_that_cannot_be_reached_is_said_and_nothing_is_lost(visit, long):
    page = visit.open(at("fleet"))
    visit.context.set_offline(True)
    page.fill("#prompt", "Kept while the line is down")
    page.locator(".thread", has_text="Line 0 of many").click()
    expect(page.locator("#offline")).to_contain_text("cannot be reached")
    visit.context.set_offline(False)
    page.click("#offline button")
    expect(page.locator("#history article .text").last).to_have_text("Line 1199 of many, about stop 1199.")
    expect(page.locator("#offline")).to_be_hidden()
    expect(page.locator("#prompt")).to_have_value("Kept while the line is down")


def test_a_key_is_asked_for_kept_for_the_tab_and_sent_as_a_header_alone(chromium, stores, tmp_path):
    keys = str(tmp_path / "keys.json")
    secret, key = add_key(keys)
    with opened(stores, "short", tmp_path, Model()) as memory, served(memory, keys=keys) as server:
        visiting = Visit(chromium, server.url)
        asked: list[str] = []
        visiting.page.on("request", lambda request: asked.append(request.url))
        page = visiting.page
        page.goto(f"{server.url}/#{at('fleet')}")
        expect(page.locator("#key-dialog")).to_be_visible()
        assert looking.faults(page) == []
        page.fill("#key", "not a key")
        page.press("#key", "Enter")
        expect(page.locator("#key-problem")).to_contain_text("not one of the server's")
        page.fill("#key", secret)
        page.press("#key", "Enter")
        expect(page.locator("#history article .text").last).to_have_text(FLEET[-1][1])
        page.reload()
        expect(page.locator("#history article .text").last).to_have_text(FLEET[-1][1])
        assert not any(secret in address for address in asked)
        assert page.evaluate("JSON.stringify(localStorage)").count(secret) == 0
        remove_key(keys, key.id)
        page.locator(".thread").click()
        page.reload()
        expect(page.locator("#key-problem")).to_contain_text("not one of the server's")
        visiting.close()


# Text is never HTML


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_anybody_says_is_text_wherever_it_is_shown(chromium, stores, tmp_path, attack):
    model = Model()
    model.steps = [attack]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": f'{{"x": "{attack!r}"}}'}}
    lines = [
        {"role": "system", "content": attack},
        {"role": "user", "content": attack, "name": "Alice"},
        {"role": "assistant", "content": attack, "tool_calls": [call]},
        {"role": "tool", "content": attack, "tool_call_id": "c1"},
        {"role": "assistant", "content": attack},
    ]
    with opened(stores, "empty", tmp_path, model) as memory, served(memory) as server:
        memory.thread(attack, user=attack).append(lines)
        memory.thread("other", user=attack).append({"role": "user", "content": f"Once more {attack}"})
        visiting = Visit(chromium, server.url)
        page = visiting.open(at(attack, user=attack))
        before = page.evaluate("document.querySelectorAll('img, script, iframe, style, b[onclick], a').length")
        write(page, attack)
        expect(page.locator("#history article.assistant[data-position]")).to_have_count(3)
        for tab in ("#tab-sent", "#tab-time", "#tab-picture"):
            page.click(tab)
        page.fill("#search", attack)
        expect(page.locator(".hit").first).to_be_visible()
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        words = re.sub(r"[`*]|\s+", "", attack)
        assert words in re.sub(r"[`*]|\s+", "", page.locator("#history article.system").inner_text())
        assert page.evaluate("document.querySelectorAll('img, script, iframe, style, b[onclick], a').length") == before
        visiting.close()  # no dialog, no violation, no error


def test_the_sources_of_the_page_have_no_way_to_read_text_as_html():
    scripts = {path.name: path.read_text("utf-8") for path in PAGE.glob("*.js")}
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|setHTML|srcdoc"
    ways += r"|createContextualFragment|javascript:|\.style\b"
    assert scripts
    assert {name: found for name, text in scripts.items() if (found := re.findall(ways, text))} == {}
    page = (PAGE / "index.html").read_text("utf-8")
    assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|https?://", page) == []


def test_a_browser_asks_whether_each_file_of_the_page_is_still_the_same(url):
    for name in ("", *sorted(path.name for path in PAGE.iterdir())):
        first = httpx.get(f"{url}/{name}")
        assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
        again = httpx.get(f"{url}/{name}", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.headers["cache-control"]) == (304, "no-cache")


def test_the_policy_allows_nothing_but_the_page_itself_and_is_in_force(visit, url):
    policy = httpx.get(f"{url}/").headers["content-security-policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy
    page = visit.open(at("fleet"))
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<p>x</p>'; return false; } catch { return true; } }"
    )
    assert refused
    page.evaluate("document.head.append(Object.assign(document.createElement('style'), {textContent: 'body{}'}))")
    page.wait_for_function("window.seen.length >= 2")
    visit.wrong.clear()
    page.evaluate("window.seen.length = 0")


# For everybody: keys, screen readers, small windows, dark and light


def lived_in(page: Page) -> None:
    """Open what is folded, so that all of it is looked at."""
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_a_place_and_contrast(chromium, long, url, scheme):
    visiting = Visit(chromium, url, color_scheme=scheme)
    page = visiting.open(at(LONG))
    page.fill("#prompt", QUESTION)
    page.fill("#budget-exact", "600")
    page.press("#budget-exact", "Enter")
    visiting.settled()
    lived_in(page)
    assert looking.faults(page) == []
    page.fill("#search", "tunnel")
    expect(page.locator(".hit").first).to_be_visible()
    for tab in ("#tab-sent", "#tab-time"):
        page.click(tab)
        page.wait_for_timeout(200)
        lived_in(page)
        assert looking.faults(page) == []
    page.click("#help")
    assert looking.faults(page) == []
    visiting.close()


@pytest.mark.parametrize("width", [320, 390])
def test_on_a_phone_each_pane_fits_and_is_reached_by_a_thumb(chromium, long, url, width):
    visiting = Visit(chromium, url, viewport={"width": width, "height": 740}, has_touch=True, is_mobile=True)
    page = visiting.open(at(LONG))
    expect(page.locator("#history")).to_be_visible()
    expect(page.locator("#thread-list")).to_be_hidden()
    assert looking.faults(page) == []
    page.tap("#meter")
    expect(page.locator("#picture")).to_be_visible()
    lived_in(page)
    assert looking.faults(page) == []
    page.tap(".panes [data-pane=threads]")
    assert looking.faults(page) == []
    page.locator(".thread", has_text="Van 5 is the refrigerated").tap()
    expect(page.locator("#history article .text").last).to_have_text(FLEET[-1][1])
    visiting.close()


def test_the_checks_of_access_can_fail(visit):
    page = visit.open(at("fleet"))
    assert looking.faults(page) == []
    page.evaluate("""() => {
      const made = (tag, attributes, text) => {
        const one = document.createElement(tag);
        Object.entries(attributes).forEach(([name, value]) => one.setAttribute(name, value));
        one.textContent = text;
        document.querySelector('.foot').append(one);
        return one;
      };
      made('button', {}, '');
      made('p', { id: 'search' }, 'pale').style.color = '#999';
      made('span', { for: 'nothing' }, 'x');
      made('div', {}, 'wide').style.minWidth = '3000px';
      made('button', { 'aria-label': 'tiny' }, 'i').style.maxHeight = '10px';
    }""")
    found = "\n".join(looking.faults(page))
    for fault in (
        "button without a name",
        "pale",
        "two elements are called search",
        "points at nothing",
        "too wide",
        "small",
    ):
        assert fault in found


def test_all_of_it_is_reached_and_used_by_keys(visit, long):
    page = visit.open(at(LONG))
    page.locator(".brand").click()
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".skip")).to_be_focused()
    reached = set()
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {
        "theme",
        "new-chat",
        "search",
        "thread",
        "export",
        "delete",
        "history",
        "prompt",
        "send",
        "tab-picture",
        "budget",
        "preset",
        "scope",
        "block",
    } <= reached
    page.locator("#history").press("ArrowUp")
    expect(page.locator("#history article[data-position='1199']")).to_be_focused()
    page.keyboard.press("ArrowUp")
    line = page.locator("#history article[data-position='1198']")
    expect(line).to_be_focused()
    page.keyboard.press("Tab")
    expect(line.locator("[data-act=copy]")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#history article[data-position='1199']")).to_be_focused()
    page.focus("#tab-picture")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#sent")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text(FLEET[0][1])


def test_colors_follow_the_system_or_what_is_chosen_and_stay_chosen(visit):
    page = visit.open(at("fleet"))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.click("#theme")
    page.click("#theme")
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    visit.settled()
    assert page.evaluate(ground) == dark
