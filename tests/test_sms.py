"""SMS over real sockets: Twilio's signature, retries answered once, late answers by the API, STOP and START."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs
from xml.etree import ElementTree as ET

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from twilio.request_validator import RequestValidator

import backscroll
from backscroll.errors import LLMError, MessageError, NotFoundError
from backscroll.llm.scripted import ScriptedLLM, ScriptedReply
from backscroll.retry import Retry
from backscroll.server.channels import APOLOGY, SendError, Switchboard, open_channel
from backscroll.server.ledger import Incoming, Ledger
from backscroll.server.problems import RefusedError, answer_refused
from backscroll.server.sms import TwilioSms
from backscroll.server.splitting import split, units
from serving import served

ACCOUNT, TOKEN = "AC" + "0" * 32, "an auth token"
ALICE, US = "+15550100", "+15550199"
AT_ONCE = Retry(attempts=3, sleep=lambda _: None)


class TwilioApi(ThreadingHTTPServer):
    """The one page of Twilio's API that sends a message; it answers with the statuses it is given, then with 201."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ApiPage)
        self.statuses: list[int] = []
        self.sent: list[dict[str, str]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _ApiPage(BaseHTTPRequestHandler):
    server: TwilioApi

    def do_POST(self) -> None:
        assert self.path == f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        status = self.server.statuses.pop(0) if self.server.statuses else 201
        if status == 201:
            self.server.sent.append({name: values[0] for name, values in form.items()})
        said = json.dumps({"sid": "SM1", "code": 21610, "message": "no", "status": status}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[TwilioApi]:
    server = TwilioApi()
    yield server
    server.shutdown()
    server.server_close()


class Running:
    """A switchboard on a free port."""

    def __init__(self, switchboard: Switchboard) -> None:
        self.switchboard = switchboard

        @asynccontextmanager
        async def lifespan(_: Starlette):
            await switchboard.resume()
            yield
            await switchboard.close(30)

        route = Route(f"/{switchboard.channel.name}", switchboard.receive, methods=["POST"])
        app = Starlette(routes=[route], lifespan=lifespan, exception_handlers={RefusedError: answer_refused})
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="on")
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self.server.run)

    def __enter__(self) -> "Running":
        self._thread.start()
        until(lambda: self.server.started)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/{self.switchboard.channel.name}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join()

    def write(
        self, text: str, sid: str = "SM-1", sender: str = ALICE, token: str = TOKEN, **more: str
    ) -> httpx.Response:
        form = {"MessageSid": sid, "From": sender, "To": US, "Body": text, **more}
        signature = RequestValidator(token).compute_signature(self.url, form)
        return httpx.post(self.url, data=form, headers={"X-Twilio-Signature": signature}, timeout=30)


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so; a test never asserts on how long that takes."""
    give_up = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up, "it never came to be so"
        time.sleep(0.005)


def said(response: httpx.Response) -> list[str]:
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/xml")
    return [message.text or "" for message in ET.fromstring(response.content).iter("Message")]


@contextmanager
def chat(path, script, api: TwilioApi, reply_seconds: float = 10.0) -> Iterator[tuple[Running, ScriptedLLM]]:
    """A server whose model says what the script says."""
    llm = ScriptedLLM(script)
    with backscroll.open(path, embedder="hashing", llm=llm) as memory:
        channel = TwilioSms(ACCOUNT, TOKEN, api_base=api.url)
        channel.reply_seconds = reply_seconds
        with Running(Switchboard(memory, channel, 2000, AT_ONCE)) as running:
            yield running, llm


def lines(path, user: str = ALICE) -> list[tuple[str, str]]:
    with backscroll.open(path, embedder="hashing") as memory:
        return [(line.message.role, line.message.text) for line in memory.thread("sms", user=user).lines()]


class Slowly:
    """An LLM that answers when it is told to."""

    def __init__(self) -> None:
        self.model = None
        self.asked = 0
        self.go = threading.Event()

    def complete(self, messages, options=None):
        self.asked += 1
        self.go.wait(30)
        return ScriptedLLM(["At last."]).complete(messages)

    def stream(self, messages, options=None):
        yield self.complete(messages)

    def close(self) -> None:
        pass


# Answering


def test_a_sender_is_a_user_and_gets_the_answer_in_the_response(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, ["The blue one.", "For Bob, too."], api) as (running, _):
        assert said(running.write("Which van?", "SM-1")) == ["The blue one."]
        assert said(running.write("And mine?", "SM-2", sender="+15550111")) == ["For Bob, too."]
    assert lines(path) == [("user", "Which van?"), ("assistant", "The blue one.")]
    assert lines(path, "+15550111") == [("user", "And mine?"), ("assistant", "For Bob, too.")]
    assert api.sent == []


def test_a_request_that_twilio_did_not_sign_is_refused_and_leaves_nothing(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, [], api) as (running, llm):
        assert running.write("Let me in", token="another token").status_code == 403
        assert (
            httpx.post(running.url, data={"MessageSid": "SM-1", "From": ALICE, "To": US, "Body": "x"}).status_code
            == 403
        )
        form = {"MessageSid": "SM-1", "From": ALICE, "To": US, "Body": "Pay 1"}
        signature = RequestValidator(TOKEN).compute_signature(running.url, form)
        changed = httpx.post(running.url, data={**form, "Body": "Pay 1000"}, headers={"X-Twilio-Signature": signature})
        assert changed.status_code == 403
        assert llm.asked == []
    with backscroll.open(path, embedder="hashing") as memory:
        assert memory.threads() == []


def test_the_server_answers_by_the_channels_that_it_is_told(monkeypatch):
    monkeypatch.setenv("TWILIO_ACCOUNT_SID", ACCOUNT)
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("BACKSCROLL_PUBLIC_URL", "https://chat.example.com")
    with (
        backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM(["Here."])) as memory,
        served(memory, channels="sms") as server,
    ):
        form = {"MessageSid": "SM-1", "From": ALICE, "To": US, "Body": "Hello?"}
        by_proxy = {"Host": "chat.example.com"}
        signature = RequestValidator(TOKEN).compute_signature("https://chat.example.com/sms", form)
        signed = {**by_proxy, "X-Twilio-Signature": signature}
        assert said(httpx.post(f"{server.url}/sms", data=form, headers=signed)) == ["Here."]
        refused = httpx.post(f"{server.url}/sms", data=form, headers={**by_proxy, "X-Twilio-Signature": "made up"})
        assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
        assert httpx.get(f"{server.url}/api/users", headers=by_proxy).status_code == 403
        assert httpx.get(f"{server.url}/sms").status_code == 404
    with backscroll.open(":memory:", embedder="hashing") as memory, served(memory) as server:
        assert httpx.post(f"{server.url}/sms", data=form).status_code in (404, 405)


def test_behind_a_proxy_the_signature_is_checked_against_the_public_address(tmp_path, api):
    with backscroll.open(tmp_path / "chat.db", embedder="hashing", llm=ScriptedLLM(["Yes."])) as memory:
        channel = TwilioSms(ACCOUNT, TOKEN, public_url="https://chat.example.com/", api_base=api.url)
        with Running(Switchboard(memory, channel, 2000)) as running:
            form = {"MessageSid": "SM-1", "From": ALICE, "To": US, "Body": "Hello?"}
            for address, status in [(running.url + "?a=1", 403), ("https://chat.example.com/sms?a=1", 200)]:
                signature = RequestValidator(TOKEN).compute_signature(address, form)
                asked = httpx.post(running.url + "?a=1", data=form, headers={"X-Twilio-Signature": signature})
                assert asked.status_code == status


def test_a_retry_gets_the_same_answer_and_the_model_is_asked_once_also_after_a_restart(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, ["Once."], api) as (running, llm):
        assert said(running.write("Hello?")) == ["Once."]
        assert said(running.write("Hello?")) == ["Once."]
        assert len(llm.asked) == 1
    with chat(path, [], api) as (running, llm):
        assert said(running.write("Hello?")) == ["Once."]
        assert llm.asked == []
    assert lines(path) == [("user", "Hello?"), ("assistant", "Once.")]


def test_a_reply_that_takes_too_long_is_sent_by_the_api_once_however_often_twilio_retries(tmp_path, api):
    path, llm = tmp_path / "chat.db", Slowly()
    with backscroll.open(path, embedder="hashing", llm=llm) as memory:
        channel = TwilioSms(ACCOUNT, TOKEN, api_base=api.url)
        channel.reply_seconds = 0.05
        with Running(Switchboard(memory, channel, 2000, AT_ONCE)) as running:
            assert said(running.write("Hello?")) == []
            assert said(running.write("Hello?")) == []
            llm.go.set()
            until(lambda: bool(api.sent))
            assert said(running.write("Hello?")) == []
        assert llm.asked == 1
    assert api.sent == [{"To": ALICE, "From": US, "Body": "At last."}]
    assert lines(path) == [("user", "Hello?"), ("assistant", "At last.")]


def test_two_workers_that_are_asked_the_same_send_one_answer(tmp_path, api):
    path, llm = tmp_path / "chat.db", Slowly()
    with (
        backscroll.open(path, embedder="hashing", llm=llm) as one,
        backscroll.open(path, embedder="hashing", llm=llm) as other,
    ):
        channels = [TwilioSms(ACCOUNT, TOKEN, api_base=api.url) for _ in range(2)]
        for channel in channels:
            channel.reply_seconds = 0.05
        with (
            Running(Switchboard(one, channels[0], 2000, AT_ONCE)) as first,
            Running(Switchboard(other, channels[1], 2000, AT_ONCE)) as second,
        ):
            assert said(first.write("Hello?")) == said(second.write("Hello?")) == []
            llm.go.set()
    assert [sent["Body"] for sent in api.sent] == ["At last."]
    assert lines(path) == [("user", "Hello?"), ("assistant", "At last.")]


def test_what_was_received_and_not_answered_when_the_process_died_is_answered_at_the_next_start(tmp_path, api):
    path = tmp_path / "chat.db"
    with backscroll.open(path, embedder="hashing") as memory:
        Ledger(memory.store, "sms").receive(Incoming("SM-1", ALICE, "sms", "Hello?", ALICE, US))
    with chat(path, ["Sorry, I was away."], api) as (running, _):
        until(lambda: bool(api.sent))
        assert said(running.write("Hello?")) == []
    with chat(path, [], api):
        pass
    assert api.sent == [{"To": ALICE, "From": US, "Body": "Sorry, I was away."}]


def test_an_api_that_fails_is_asked_again_and_one_that_is_gone_at_the_next_start(tmp_path, api):
    path = tmp_path / "chat.db"
    waiting = Incoming("SM-1", ALICE, "sms", "Hello?", ALICE, US)
    with backscroll.open(path, embedder="hashing") as memory:
        Ledger(memory.store, "sms").receive(waiting)
    api.statuses = [503, 429, 500]
    with chat(path, ["Here."], api):
        until(lambda: not api.statuses)
    assert api.sent == []
    api.statuses = [503]
    with chat(path, [], api):
        pass
    assert [one["Body"] for one in api.sent] == ["Here."]


def test_a_sender_whom_the_api_refuses_is_not_tried_again(tmp_path, api):
    path = tmp_path / "chat.db"
    with backscroll.open(path, embedder="hashing") as memory:
        Ledger(memory.store, "sms").receive(Incoming("SM-1", ALICE, "sms", "Hello?", ALICE, US))
    api.statuses = [400]
    with chat(path, ["Here."], api):
        pass
    with chat(path, [], api):
        pass
    assert api.sent == [] and api.statuses == []


def test_two_messages_of_a_sender_are_answered_in_their_order(tmp_path, api):
    path = tmp_path / "chat.db"
    slow = ScriptedReply("First.", delay_seconds=0.2)
    with chat(path, [slow, "Second."], api) as (running, _):
        answers: list[list[str]] = []
        first = threading.Thread(target=lambda: answers.append(said(running.write("One", "SM-1"))))
        first.start()
        until(lambda: bool(running.switchboard._answers))
        answers.append(said(running.write("Two", "SM-2")))
        first.join()
    assert [text for _, text in lines(path)] == ["One", "First.", "Two", "Second."]


def test_a_model_that_fails_leaves_an_apology_and_the_message_stored(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, [LLMError("it is on fire"), "Now."], api) as (running, _):
        assert said(running.write("Hello?", "SM-1")) == [APOLOGY]
        assert said(running.write("Hello?", "SM-1")) == ["Now."]
    assert lines(path) == [("user", "Hello?"), ("assistant", "Now.")]


def test_what_the_model_thought_is_not_sent(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, ["<think>Who is it?</think>\n\nHello."], api) as (running, _):
        assert [said(running.write("Hello?", "SM-1")) for _ in range(2)] == [["Hello."]] * 2


def test_a_long_answer_goes_in_numbered_parts_that_make_the_whole(tmp_path, api):
    text = " ".join(f"Sentence number {i} is here." for i in range(200))
    with chat(tmp_path / "chat.db", [text], api) as (running, _):
        parts = said(running.write("Tell me all"))
    assert len(parts) > 1
    assert all(len(part) <= 1600 for part in parts)
    assert [part.split(") ", 1)[0] for part in parts] == [f"({i + 1}/{len(parts)}" for i in range(len(parts))]
    assert " ".join(part.split(") ", 1)[1] for part in parts) == text


def test_what_is_attached_is_named(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, ["Nice.", "What is it?"], api) as (running, _):
        running.write("Look", "SM-1", NumMedia="1", MediaContentType0="image/jpeg")
        running.write("", "SM-2", NumMedia="0")
    assert [text for role, text in lines(path) if role == "user"] == ["Look\n[attached: image/jpeg]", "[nothing]"]


# STOP and START


def test_stop_is_respected_until_start_also_after_a_restart(tmp_path, api):
    path = tmp_path / "chat.db"
    with chat(path, ["Hi."], api) as (running, llm):
        assert said(running.write("Hello?", "SM-1")) == ["Hi."]
        assert said(running.write(" stop ", "SM-2")) == []
        assert said(running.write("Are you there?", "SM-3")) == []
        assert len(llm.asked) == 1
    with chat(path, ["Back."], api) as (running, _):
        assert said(running.write("Hello?", "SM-4")) == []
        assert said(running.write("Another sender", "SM-5", sender="+15550111")) == ["Back."]
        assert said(running.write("START", "SM-6")) == []
    with chat(path, ["Welcome."], api) as (running, _):
        assert said(running.write("Yes", "SM-7")) == ["Welcome."]
    assert [text for _, text in lines(path)] == ["Hello?", "Hi.", "Yes", "Welcome."]
    assert ALICE.encode() not in b"".join(line for line in path.read_bytes().splitlines() if b"wish sms" in line)


def test_who_says_stop_while_an_answer_is_made_does_not_get_it(tmp_path, api):
    path, llm = tmp_path / "chat.db", Slowly()
    with backscroll.open(path, embedder="hashing", llm=llm) as memory:
        channel = TwilioSms(ACCOUNT, TOKEN, api_base=api.url)
        channel.reply_seconds = 0.05
        with Running(Switchboard(memory, channel, 2000, AT_ONCE)) as running:
            running.write("Hello?", "SM-1")
            running.write("STOP", "SM-2")
            llm.go.set()
    assert api.sent == []


def test_who_says_stop_does_not_get_the_answer_in_the_response_either(tmp_path, api):
    path, llm = tmp_path / "chat.db", Slowly()
    got: list[str] = []
    with backscroll.open(path, embedder="hashing", llm=llm) as memory:
        channel = TwilioSms(ACCOUNT, TOKEN, api_base=api.url)
        channel.reply_seconds = 30
        with Running(Switchboard(memory, channel, 2000, AT_ONCE)) as running:
            asking = threading.Thread(target=lambda: got.extend(said(running.write("Hello?", "SM-1"))))
            asking.start()
            until(lambda: llm.asked == 1)
            running.write("STOP", "SM-2")
            llm.go.set()
            asking.join()
    assert (got, api.sent) == ([], [])


def test_help_that_twilio_has_answered_does_not_go_to_the_model(tmp_path, api):
    with chat(tmp_path / "chat.db", ["Hi."], api) as (running, llm):
        assert said(running.write("HELP", "SM-1", OptOutType="HELP")) == []
        assert llm.asked == []
        assert said(running.write("Help", "SM-2")) == ["Hi."]


# Another channel is one small file


class Postcards:
    """A channel whose webhook is JSON and whose response is JSON."""

    name = "postcards"
    max_units = 40
    reply_seconds = 10.0

    async def read(self, request: Request) -> Incoming:
        card = await request.json()
        if card.get("stamp") != "real":
            raise RefusedError(403, "the stamp is not real")
        return Incoming(card["id"], card["from"], "cards", card["text"], card["from"], "us")

    def response(self, texts) -> Response:
        return JSONResponse(list(texts))

    def send(self, incoming: Incoming, text: str) -> None:
        raise SendError("the post is closed", is_final=True)


def test_another_channel_is_four_members():
    llm = ScriptedLLM(["A long answer that does not fit on one card. It goes on here."])
    opened = backscroll.open(":memory:", embedder="hashing", llm=llm)
    with opened as memory, Running(Switchboard(memory, Postcards(), 2000)) as running:
        card = {"id": "1", "from": "bob", "text": "Hi", "stamp": "real"}
        answered = httpx.post(running.url, json=card).json()
        assert httpx.post(running.url, json={**card, "stamp": "drawn"}).status_code == 403
    assert answered == ["(1/2) A long answer that does not fit on", "(2/2) one card. It goes on here."]


def test_a_channel_is_opened_by_name_and_says_what_is_missing(monkeypatch):
    monkeypatch.delenv("TWILIO_ACCOUNT_SID", raising=False)
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", TOKEN)
    with pytest.raises(MessageError, match=r"set TWILIO_ACCOUNT_SID$"):
        open_channel("sms")
    monkeypatch.setenv("TWILIO_ACCOUNT_SID", ACCOUNT)
    assert open_channel("sms").name == "sms"
    with pytest.raises(NotFoundError, match="there are sms"):
        open_channel("pigeon")
    with backscroll.open(":memory:", embedder="hashing") as memory, pytest.raises(LLMError, match="--llm"):
        Switchboard(memory, open_channel("sms"), 2000)


# Splitting


@given(st.text(max_size=400), st.integers(24, 80))
def test_the_parts_fit_and_nothing_but_space_between_them_is_lost(text, max_units):
    parts = split(text, max_units)
    assert all(units(part) <= max_units for part in parts)
    bodies = [part.split(") ", 1)[1] for part in parts] if len(parts) > 1 else parts
    assert "".join("".join(bodies).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("A first paragraph.\n\nA second one that is longer.", "A first paragraph."),
        ("One is here. Two is here. Three is here now.", "One is here. Two is here."),
        ("no sentence ends here, but a comma does now", "no sentence ends here,"),
        ("just words and words and words and words", "just words and words and"),
        ("x" * 60, "x" * 26),
    ],
)
def test_a_text_is_cut_where_a_reader_would_pause(text, ends):
    assert split(text, 32)[0] == f"(1/{len(split(text, 32))}) {ends}"


def test_no_character_is_torn():
    family = "👩‍👩‍👧"
    parts = split(family * 30, 40)
    assert "".join(part.split(") ", 1)[1] for part in parts).count(family) == 30
    assert all(part.encode("utf-16") for part in parts)


def test_a_ledger_remembers_as_many_answered_messages_as_retries_may_come_for():
    with backscroll.open(":memory:", embedder="hashing") as memory:
        ledger = Ledger(memory.store, "sms")
        for i in range(520):
            ledger.receive(Incoming(f"SM-{i}", ALICE, "sms", "Hi", ALICE, US))
            ledger.become(f"SM-{i}", "response")
        assert ledger.receive(Incoming("SM-519", ALICE, "sms", "Hi", ALICE, US)) == "response"
        assert len(json.loads(memory.store.setting("ledger sms"))) == 500
        assert ALICE not in memory.store.setting("ledger sms")
        assert not ledger.become("SM-519", "sending")
