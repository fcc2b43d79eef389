"""Who may ask the server, and how much: keys, tenants, limits, and what a foreign page may not do."""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner
from fastapi.routing import APIRoute

import backscroll
from backscroll.cli import main
from backscroll.errors import MessageError, NotFoundError
from backscroll.llm.scripted import ScriptedLLM
from backscroll.server.app import create_app
from backscroll.server.gate import Rate
from backscroll.server.keys import Keyring, add_key, read_keys, remove_key
from backscroll.server.settings import ServerSettings, read_settings
from backscroll.wiring import open_memory
from openai_server import OpenAIServer, slow
from serving import asking, served

SECRET = "the-gate-code-is-4711"
OPEN = {"/healthz", "/readyz"}


@pytest.fixture
def upstream(monkeypatch) -> Iterator[OpenAIServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "the server's")
    server = OpenAIServer()
    yield server
    server.stop()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def run(*arguments: str):
    return CliRunner().invoke(main, arguments)


# keys


def test_a_key_is_shown_once_and_kept_as_a_hash_that_only_its_owner_reads(tmp_path):
    path = tmp_path / "keys.json"
    made = run("keys", "add", "--keys", str(path), "--tenant", "acme", "--note", "laptop")
    secret = made.stdout.strip()
    assert secret.startswith("bs_") and len(secret) > 40
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    [listed] = json.loads(run("keys", "list", "--keys", str(path), "--json").stdout)
    assert (listed["tenant"], listed["note"]) == ("acme", "laptop")
    assert Keyring(str(path)).find(secret).tenant == "acme"
    assert run("keys", "remove", "--keys", str(path), listed["id"]).exit_code == 0
    assert Keyring(str(path)).find(secret) is None


def test_keys_that_are_made_at_once_are_all_kept(tmp_path):
    path = str(tmp_path / "keys.json")
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: add_key(path)[1].id, range(24)))
    assert sorted(key.id for key in read_keys(path)) == sorted(made)


def test_a_wrong_key_opens_nothing(tmp_path):
    path = str(tmp_path / "keys.json")
    secret, key = add_key(path)
    ring = Keyring(path)
    for wrong in ("", secret[:-1], secret + "x", secret.upper(), key.hash, "\udcff", "é"):
        assert ring.find(wrong) is None


def test_a_key_that_is_removed_while_the_server_runs_opens_nothing_any_more(tmp_path):
    path = str(tmp_path / "keys.json")
    (first, key), (second, _) = add_key(path), add_key(path)
    ring = Keyring(path)
    assert ring.find(first) and ring.find(second)
    remove_key(path, key.id)
    assert ring.find(first) is None
    assert ring.find(second)


def test_what_is_no_file_of_keys_is_refused(tmp_path):
    path = tmp_path / "keys.json"
    for text in ("", "{}", '{"keys": 3}', '{"keys": [{"tenant": "../x", "hash": "", "created_at": ""}]}'):
        path.write_text(text)
        with pytest.raises(MessageError):
            read_keys(str(path))
    path.write_text('{"keys": []}')
    with pytest.raises(NotFoundError):
        remove_key(str(path), "abc")
    for name in ("", "../x", "A", "a/b", "a" * 64, "a.b"):
        with pytest.raises(MessageError):
            add_key(str(path), name)


# tenants


@contextmanager
def two_tenants(folder: Path, upstream: OpenAIServer, **settings) -> Iterator[tuple[str, str, str]]:
    """A server with the tenants acme, who has a secret, and other; its address, and their keys."""
    keys = str(folder / "keys.json")
    (acme, _), (other, _) = add_key(keys, "acme"), add_key(keys, "other")
    with served(None, db=str(folder / "chat.db"), keys=keys, upstream=upstream.base_url, **settings) as server:
        said = {"messages": [{"role": "user", "content": SECRET, "id": "m1"}]}
        place = {"user": "alice", "thread": "boat"}
        stored = httpx.post(f"{server.url}/api/messages", params=place, json=said, headers=bearer(acme))
        assert stored.status_code == 200
        yield server.url, acme, other


def routes() -> list[tuple[str, str]]:
    """Every method and path of the application, but the page's files."""
    app = create_app(None, ServerSettings())
    found = {("GET", "/openapi.json")}
    pending = list(app.routes)
    while pending:
        route = pending.pop()
        if isinstance(route, APIRoute):
            found |= {(method, route.path) for method in route.methods}
        else:
            pending += getattr(getattr(route, "original_router", None), "routes", None) or getattr(route, "routes", [])
    return sorted(found)


def attempt(url: str, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """Ask a route for what the tenant acme has."""
    params = {"user": "alice", "thread": "boat", "q": SECRET[:13], "scope": "all", "position": 0}
    bodies = {
        "/api/messages": {"messages": [{"role": "user", "content": "Mine.", "id": "m1"}]},
        "/v1/chat/completions": {
            "model": "small",
            "messages": [{"role": "user", "content": "What is the gate code?"}],
            "user": "alice",
            "metadata": {"backscroll_thread": "boat"},
        },
    }
    body = bodies.get(path, {"prompt": "What is the gate code?", "scope": "all"})
    given = {"json": body} if method in ("POST", "PUT") else {}
    return httpx.request(method, url + path, params=params, headers=headers, timeout=30, **given)


def test_there_are_routes_to_walk():
    assert {path for _, path in routes()} >= {
        *("/v1/chat/completions", "/v1/models", "/metrics", "/healthz", "/openapi.json"),
        *(f"/api/{name}" for name in ("users", "threads", "messages", "context", "reply", "recall", "export", "turns")),
    }


def test_a_tenant_sees_and_changes_nothing_of_anothers_by_any_route(tmp_path, upstream):
    with two_tenants(tmp_path, upstream) as (url, acme, other):
        for method, path in routes():
            got = attempt(url, method, path, bearer(other))
            assert got.status_code != 401, path
            assert SECRET not in got.text, path
        assert SECRET not in json.dumps(upstream.bodies)
        lines = httpx.get(f"{url}/api/messages", params={"user": "alice", "thread": "boat"}, headers=bearer(acme))
        assert [line["text"] for line in lines.json()["items"]] == [SECRET]
    for name, is_there in (("chat.acme.db", True), ("chat.other.db", False)):
        with open_memory(tmp_path / name, embedder="hashing") as memory:
            texts = [line.message.text for info in memory.threads() for line in memory.thread(*info_key(info)).lines()]
            assert (SECRET in texts) == is_there


def info_key(info) -> tuple[str, str]:
    return info.thread, info.user


def test_no_route_answers_without_a_key_but_the_page_and_health(tmp_path, upstream):
    with two_tenants(tmp_path, upstream) as (url, acme, _):
        for method, path in [*routes(), ("GET", "/api/nothing"), ("GET", "/elsewhere"), ("GET", "/page/../api/users")]:
            for headers in ({}, bearer("bs_wrong"), {"Authorization": f"Basic {acme}"}, {"Cookie": f"key={acme}"}):
                got = attempt(url, method, path, headers)
                if path in OPEN:
                    assert got.status_code == 200
                elif path == "/api/status":
                    assert got.json()["needs_key"] and got.json()["store"] is None
                else:
                    assert got.status_code == 401, path
                    assert got.headers["www-authenticate"] == "Bearer"
        assert httpx.get(url).status_code == 200
        assert httpx.get(f"{url}/v1/models", headers=bearer(acme)).status_code == 200


def test_a_key_of_this_server_never_reaches_the_upstream(tmp_path, upstream, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with two_tenants(tmp_path, upstream) as (url, acme, _):
        assert attempt(url, "POST", "/v1/chat/completions", bearer(acme)).status_code == 200
    assert upstream.keys == [None]


def test_the_keys_errors_have_the_form_of_the_path(tmp_path, upstream):
    with two_tenants(tmp_path, upstream) as (url, _, _):
        assert httpx.get(f"{url}/v1/models").json()["error"]["code"] == "invalid_api_key"
        assert httpx.get(f"{url}/api/users").headers["content-type"] == "application/problem+json"


# without keys


def test_without_keys_nothing_but_this_machine_may_be_listened_on():
    with pytest.raises(MessageError, match="keys"):
        ServerSettings(host="0.0.0.0")
    assert ServerSettings(host="0.0.0.0", keys="keys.json").host == "0.0.0.0"
    refused = run("serve", "--host", "0.0.0.0")
    assert refused.exit_code == 2
    assert "keys" in refused.stderr


def test_without_keys_another_name_for_this_machine_is_refused(memory):
    with asking(memory) as client:
        assert client.get("/api/users", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/api/users", headers={"Host": "localhost:1"}).status_code == 200
        assert client.get("/api/users", headers={"Host": ""}).status_code in (400, 403)


def test_a_page_of_another_site_may_not_write(memory):
    with asking(memory) as client:
        place = {"params": {"thread": "t"}, "json": {"messages": [{"role": "user", "content": "Hi"}]}}
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
            assert client.post("/api/messages", headers={"Origin": origin}, **place).status_code == 403
        own = str(client.base_url).rstrip("/")
        assert client.post("/api/messages", headers={"Origin": own}, **place).status_code == 200
        assert "access-control-allow-origin" not in client.get("/api/users", headers={"Origin": own}).headers


@pytest.mark.parametrize("path", ["/api/status", "/healthz", "/v1/models", "/nothing"])
@pytest.mark.parametrize("headers", [b"Host: [", b"Host: localhost\r\nOrigin: http://["])
@pytest.mark.parametrize("has_keys", [False, True])
def test_a_host_or_an_origin_that_is_no_address_is_refused(memory, tmp_path, path, headers, has_keys):
    keys = str(tmp_path / "keys.json") if has_keys else ""
    if has_keys:
        add_key(keys)
    with served(memory, keys=keys) as server, connected(server.url) as connection:
        lines = f"POST {path} HTTP/1.1\r\n".encode() + headers + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        connection.sendall(lines)
        status = connection.recv(100).split()[1]
        assert status == b"403" or (path == "/healthz" and status == b"405")  # no Origin may write what takes none


# limits


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def test_a_body_that_is_too_long_is_refused_whether_it_says_its_length_or_not(memory):
    with asking(memory, max_body_bytes=1000) as client:
        body = json.dumps({"messages": [{"role": "user", "content": "x" * 2000}]}).encode()
        kind = {"Content-Type": "application/json"}
        said = client.post("/api/messages", params={"thread": "t"}, content=body, headers=kind)
        assert said.status_code == 413
        unsaid = client.post(
            "/api/messages", params={"thread": "t"}, content=iter([body[:900], body[900:]]), headers=kind
        )
        assert unsaid.status_code == 413
        proxied = client.post("/v1/chat/completions", content=iter([body[:900], body[900:]]), headers=kind)
        assert proxied.status_code in (413, 501)
        assert memory.threads() == []


def test_more_requests_than_a_minute_allows_are_told_when_to_come_back(memory):
    with asking(memory, requests_per_minute=5) as client:
        got = [client.get("/api/users") for _ in range(7)]
        assert [one.status_code for one in got[:5]] == [200] * 5
        assert got[6].status_code == 429
        assert int(got[6].headers["retry-after"]) >= 1
        assert client.get("/healthz").status_code == 200


def test_a_bucket_fills_again(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("backscroll.server.gate.time.monotonic", lambda: now[0])
    rate = Rate(60)
    assert [bool(rate.wait_seconds("a")) for _ in range(61)] == [False] * 60 + [True]
    assert not rate.wait_seconds("b")
    now[0] += 2
    assert [bool(rate.wait_seconds("a")) for _ in range(3)] == [False, False, True]
    assert Rate(0).wait_seconds("a") == 0


def test_more_requests_at_once_than_are_allowed_are_told_to_come_back(memory, upstream):
    upstream.otherwise = slow(1.0)
    with asking(memory, upstream=upstream.base_url, max_requests=2) as client:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(client.post("/v1/chat/completions", json=body).status_code)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(statuses) == [200, 200, 503, 503]


def test_a_client_that_sends_its_body_too_slowly_is_let_go(memory, monkeypatch):
    monkeypatch.setattr("backscroll.server.gate._BODY_SECONDS", 0.2)
    with served(memory, upstream="http://127.0.0.1:9/v1") as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b'{"model"')
        began = time.monotonic()
        assert connection.getresponse().status == 408
        assert time.monotonic() - began < 9
        connection.close()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/messages?thread=t"])
def test_a_body_that_comes_byte_by_byte_is_as_slow_as_one_that_does_not_come(memory, monkeypatch, path):
    monkeypatch.setattr("backscroll.server.gate._BODY_SECONDS", 0.5)
    with served(memory, upstream="http://127.0.0.1:9/v1") as server, connected(server.url) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n".encode())
        with suppress(OSError):  # the server may have closed it by now
            for _ in range(30):
                connection.sendall(b" ")
                time.sleep(0.05)
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_who_has_no_key_takes_no_place_of_those_who_have_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TWILIO_ACCOUNT_SID", "AC" + "0" * 32)
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", "a token")
    monkeypatch.setattr("backscroll.server.gate._MAX_OPEN", 3)
    keys = str(tmp_path / "keys.json")
    secret, _ = add_key(keys)
    begun = b"POST /sms HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"
    with (
        backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM(["Hi."])) as memory,
        served(memory, keys=keys, channels="sms", max_requests=2) as server,
        ExitStack() as stack,
    ):
        for _ in range(3):
            connection = stack.enter_context(connected(server.url))
            connection.sendall(begun)
            assert connection.recv(100).startswith(b"HTTP/1.1 100")  # it is inside, and its body is waited for
        assert httpx.get(f"{server.url}/api/users", headers=bearer(secret)).status_code == 200
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert httpx.post(f"{server.url}/sms", content=b"x").status_code == 503


def test_a_channel_is_called_only_so_often_by_one_address(monkeypatch):
    monkeypatch.setenv("TWILIO_ACCOUNT_SID", "AC" + "0" * 32)
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", "a token")
    with (
        backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM(["Hi."])) as memory,
        asking(memory, channels="sms", requests_per_minute=5) as client,
    ):
        got = [client.post("/sms", content=b"x").status_code for _ in range(7)]
        assert (got[:5], got[6]) == ([403] * 5, 429)
        assert client.get("/api/users").status_code == 200


# settings


def test_options_go_before_the_environment_and_that_before_the_file(tmp_path, monkeypatch):
    path = tmp_path / "server.toml"
    path.write_text('port = 1\nmax_tokens = 2\nhost = "localhost"\ntimeout_seconds = 5\n')
    monkeypatch.setenv("BACKSCROLL_CONFIG", str(path))
    monkeypatch.setenv("BACKSCROLL_PORT", "3")
    monkeypatch.setenv("BACKSCROLL_MAX_TOKENS", "4")
    read = read_settings({"port": 5, "host": None})
    assert (read.port, read.max_tokens, read.host, read.timeout_seconds) == (5, 4, "localhost", 5.0)
    for name, value in read.to_environment().items():
        monkeypatch.setenv(name, value)
    assert read_settings({}) == read


@pytest.mark.parametrize(
    "text",
    ["nothing = 1", "port = 'x'", "port = true", "port = 0", "log_format = 'xml'", "port", "db = 3", "workers = -1"],
)
def test_a_setting_that_cannot_be_meant_is_refused(tmp_path, text):
    (tmp_path / "server.toml").write_text(text)
    with pytest.raises(MessageError):
        read_settings({}, str(tmp_path / "server.toml"))
