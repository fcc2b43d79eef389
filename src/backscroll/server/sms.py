"""SMS by Twilio: its signature, its form, its TwiML, its API. Also WhatsApp by Twilio, whose webhook is the same."""

import os
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import parse_qsl

from requests.exceptions import RequestException
from starlette.requests import Request
from starlette.responses import Response
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.http.response import Response as TwilioResponse
from twilio.request_validator import RequestValidator
from twilio.rest import Client
from twilio.twiml.messaging_response import MessagingResponse

from backscroll.errors import MessageError
from backscroll.server.channels import SendError
from backscroll.server.ledger import Incoming
from backscroll.server.problems import RefusedError

STOP = frozenset("STOP STOPALL UNSUBSCRIBE CANCEL END QUIT OPTOUT REVOKE".split())  # Twilio blocks the sender at these
START = frozenset("START YES UNSTOP".split())
THREAD = "sms"
_API = "https://api.twilio.com"
_TRANSIENT = (408, 429)
_MAX_BYTES = 65_536  # of a webhook's form: 1,600 characters and what is said about them


class TwilioSms:
    """The channel of one Twilio account; a sender is a user.

    Attributes: see `Channel`.
    """

    name = "sms"
    max_units = 1600  # Twilio's limit of one message
    reply_seconds = 10.0  # Twilio waits 15 seconds, its retries included

    def __init__(
        self, account: str, token: str, public_url: str | None = None, api_base: str = _API, timeout_seconds: float = 10
    ) -> None:
        """Take the account.

        Args:
            account, token: the account's SID and its auth token.
            public_url: the address that Twilio calls, where a proxy in front hides it: ``https://chat.example.com``.
            api_base: where the API is.
            timeout_seconds: how long to wait for the API.
        """
        self._validator = RequestValidator(token)
        self._public_url = public_url
        self._client = Client(account, token, http_client=_HttpClient(api_base, timeout_seconds))

    async def read(self, request: Request) -> Incoming:
        """The message, its signature verified."""
        body = await request.body()
        if len(body) > _MAX_BYTES:
            raise RefusedError(413, "this is no message of Twilio's")
        fields = _fields(body)
        signature = request.headers.get("X-Twilio-Signature", "")
        if not self._validator.validate(self._url(request), fields, signature):
            raise RefusedError(403, "this is not signed by Twilio for this address: see docs/sms.md, 'Refused'")
        missing = [name for name in ("MessageSid", "From", "To") if not fields.get(name)]
        if missing:
            raise RefusedError(403, f"the form has no {', '.join(missing)}")
        text = _text(fields)
        return Incoming(
            id=fields["MessageSid"],
            user=fields["From"],
            thread=THREAD,
            text=text,
            sender=fields["From"],
            receiver=fields["To"],
            wish=_wish(fields, text),
        )

    def response(self, texts: Sequence[str]) -> Response:
        """TwiML."""
        twiml = MessagingResponse()
        for text in texts:
            twiml.message(text)
        return Response(str(twiml), media_type="application/xml")

    def send(self, incoming: Incoming, text: str) -> None:
        """One message by the API, from the number that was written to."""
        try:
            self._client.messages.create(to=incoming.sender, from_=incoming.receiver, body=text)
        except TwilioRestException as error:
            is_final = error.status < 500 and error.status not in _TRANSIENT
            raise SendError(f"status {error.status}, code {error.code}", is_final) from error
        except RequestException as error:
            raise SendError(f"Twilio's API cannot be reached ({type(error).__name__})") from error

    def _url(self, request: Request) -> str:
        if self._public_url is None:
            return str(request.url)
        query = f"?{request.url.query}" if request.url.query else ""
        return self._public_url.rstrip("/") + request.url.path + query


def open_sms() -> TwilioSms:
    """The channel of the account that the environment names. Raises: MessageError, which says what is missing."""
    missing = [name for name in ("TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN") if not os.environ.get(name)]
    if missing:
        raise MessageError(f"SMS needs an account at Twilio: set {' and '.join(missing)}")
    return TwilioSms(
        os.environ["TWILIO_ACCOUNT_SID"], os.environ["TWILIO_AUTH_TOKEN"], os.environ.get("BACKSCROLL_PUBLIC_URL")
    )


def _fields(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _text(fields: Mapping[str, str]) -> str:
    """What was written, and what was attached, in words: a picture by SMS is not fetched."""
    count = fields.get("NumMedia", "0")
    kinds = [fields.get(f"MediaContentType{i}", "a file") for i in range(int(count) if count.isdecimal() else 0)]
    attached = [f"[attached: {kind}]" for kind in kinds]
    return "\n".join([part for part in (fields.get("Body", ""), *attached) if part.strip()]) or "[nothing]"


def _wish(fields: Mapping[str, str], text: str) -> Literal["stop", "start", "help"] | None:
    """What is wished for; HELP only where Twilio says that it answered it."""
    kind = fields.get("OptOutType", "")
    if kind == "HELP":
        return "help"
    word = kind or text.strip().upper()
    return "stop" if word in STOP else "start" if word in START else None


class _HttpClient(TwilioHttpClient):  # type: ignore[misc]  # it ships no types
    """Twilio's own client, with the API at another address where one was given."""

    def __init__(self, api_base: str, timeout_seconds: float) -> None:
        super().__init__(timeout=timeout_seconds)
        self._api_base = api_base.rstrip("/")

    def request(self, method: str, url: str, **others: object) -> TwilioResponse:
        """As Twilio's, at the address of the API."""
        return super().request(method, self._api_base + url.removeprefix(_API), **others)
