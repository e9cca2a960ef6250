"""Extractor that asks a server with the OpenAI chat API, within a budget of tokens."""

from __future__ import annotations

import json
import math
import os
import random
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from turngraph.configs.extras import extra
from turngraph.configs.user_error import UserError
from turngraph.configs.words import plural
from turngraph.data.memory_graph.extract.budget import (
    Budget,
    BudgetSpent,
    Reservation,
    Tokens,
    prompt_bound,
)
from turngraph.data.memory_graph.extract.http_post import (
    Failure,
    NoConnection,
    Response,
    post,
    shown_url,
)
from turngraph.data.memory_graph.extract.model_extractor import (
    ModelExtractor,
    Prompt,
    Reply,
    template_words,
)
from turngraph.data.memory_graph.extract.replies import misfit
from turngraph.data.memory_graph.names import printable

with extra("memory", "--extractor endpoint needs"):
    import httpx2

__all__ = ["BudgetSpent", "EndpointExtractor", "EndpointSettings"]

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
"""HTTP statuses after which a request is retried."""
ENVELOPE_BYTES, BYTES_PER_TOKEN = 65_536, 64
"""Largest response: ``ENVELOPE_BYTES``, and ``BYTES_PER_TOKEN`` for each of ``max_tokens``."""
MAX_SHOWN = 4000
"""Maximum length, in characters, of a bad reply that the model is shown again."""
MAX_EXPLAINED = 2000
"""Number of characters of a refusal's explanation that are read."""
MAX_WAIT = 120.0
"""Longest pause before a retry, in seconds; the client gives up if the server asks for more."""
QUOTED, QUOTED_KEY = 12, 6
"""Letters and digits in sequence from which on a message counts as quoting prompt or key."""
MAX_USAGE = 1 << 31
"""Reported numbers of tokens from this on are ignored as impossible."""


@dataclass(frozen=True)
class EndpointSettings:
    """Settings of the requests to a server.

    Args:
        base_url: URL up to the version, such as ``http://localhost:8000/v1``.
        model: the model's name on the server.
        api_key_variable: environment variable with the key, which is sent if the variable is set.
        max_tokens: maximum number of tokens of a reply.
        token_limit: the request's field for ``max_tokens``; newer OpenAI models need
            ``max_completion_tokens``.
        response_format: ``json_schema`` if the server constrains its decoding to a schema,
            ``json_object`` if to any JSON object, ``none`` if it does not constrain it.
        temperature: temperature of the sampling; None: the server's default.
        concurrency: maximum number of simultaneous requests.
        retries: maximum number of further attempts at a failed request.
        timeout: seconds from the begin of a request to the end of its reply.
        backoff: seconds before the first retry, doubled for each further one, unless the server
            sets the pause.
        budget: maximum number of tokens of prompts and replies together; None: no limit.
        prompt_price, completion_price: price of a million tokens.

    Raises:
        UserError: a value is invalid; the message names the field.
    """

    base_url: str
    model: str
    api_key_variable: str = "OPENAI_API_KEY"
    max_tokens: int = 4096
    token_limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    response_format: Literal["json_schema", "json_object", "none"] = "json_schema"
    temperature: float | None = 0.0
    concurrency: int = 4
    retries: int = 4
    timeout: float = 120.0
    backoff: float = 1.0
    budget: int | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0

    def __post_init__(self) -> None:
        try:
            url = httpx2.URL(self.base_url)
        except httpx2.InvalidURL:
            raise UserError(f"base_url: {self.shown!r} given, not a URL") from None
        if url.scheme not in ("http", "https") or not url.host:
            raise UserError(f"base_url: {self.shown!r} given, must begin with http(s)://")
        if url.query or url.fragment:
            raise UserError(f"base_url: {self.shown!r} given, must not have a query or fragment")
        for name, least in (("max_tokens", 1), ("concurrency", 1), ("retries", 0)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: {getattr(self, name)} given, must be {least} or more")
        if self.timeout <= 0:
            raise UserError(f"timeout: {self.timeout} given, must be above 0")
        if self.budget is not None and self.budget < 0:
            raise UserError(f"budget: {self.budget} given, must be 0 or more")

    @property
    def url(self) -> str:
        """URL of the requests."""
        return self.base_url.rstrip("/") + "/chat/completions"

    @property
    def shown(self) -> str:
        """URL for messages: without user, password and query, which may hold a key."""
        return shown_url(self.base_url)


class BadReply(Failure):
    """A reply that cannot be used, which is shown to the model at the next attempt.

    Args:
        reason: reason for the error message of the last attempt, without the reply's text.
        text: the reply.
        fault: description of the fault, for the model.
    """

    def __init__(self, reason: str, text: str, fault: str) -> None:
        super().__init__(reason)
        self.text, self.fault = text, fault


class EndpointExtractor(ModelExtractor):
    """Extractor that asks a server; every request counts against one budget, failed ones too.

    Args:
        settings: settings of the requests.
        relations, classes: as in ``ModelExtractor``.
    """

    def __init__(
        self,
        settings: EndpointSettings,
        relations: Sequence[str] = (),
        classes: Sequence[str] = (),
    ) -> None:
        self.client = ChatClient(settings)
        super().__init__(f"endpoint:{settings.model}", self.client.ask, relations, classes)

    def cost(self) -> dict[str, float]:
        """Return the requests, tokens and their price so far.

        A request without reported usage counts with its largest possible usage;
        ``estimated_requests`` is the number of such requests.
        """
        budget, prices = self.client.budget, self.client.settings
        prompt, completion = budget.spent
        return super().cost() | {
            "requests": budget.requests,
            "estimated_requests": budget.estimated,
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "cost": (prompt * prices.prompt_price + completion * prices.completion_price) / 1e6,
        }


class ChatClient:
    """Client that asks a server for JSON.

    Args:
        settings: settings of the requests.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.settings = settings
        self.budget = Budget(settings.budget)

    def ask(self, prompts: Sequence[Prompt]) -> list[Reply]:
        """Return replies in the order of the prompts.

        Raises:
            BudgetSpent: the next request might exceed the budget.
            UserError: no usable reply after all attempts, or the server refuses.
        """
        workers = min(self.settings.concurrency, len(prompts))
        stop = threading.Event()
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._answer, prompt, stop) for prompt in prompts]
            try:
                return [future.result() for future in futures]
            finally:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, prompt: Prompt, stop: threading.Event) -> Reply:
        bad: BadReply | None = None
        for attempt in range(self.settings.retries + 1):
            try:
                return self._attempt(prompt, bad)
            except Failure as failure:
                reason, wait = str(failure), failure.wait
                bad = failure if isinstance(failure, BadReply) else bad
            if wait is not None and wait > MAX_WAIT:
                reason += f", and the server asks to wait {wait:g} s"
                break
            pause = self.settings.backoff * 2**attempt * random.uniform(0.5, 1)
            is_last = attempt == self.settings.retries
            if is_last or stop.wait(min(pause, MAX_WAIT) if wait is None else wait):
                break
        raise self._error(prompt, f"{reason}; given up after {plural(attempt + 1, 'attempt')}")

    def _error(self, prompt: Prompt, reason: str) -> UserError:
        return UserError(f"{self.settings.shown}: {prompt.subject}: {reason}")

    def _attempt(self, prompt: Prompt, bad: BadReply | None) -> Reply:
        body = self._body(prompt, bad)
        most = Tokens(prompt_bound(body), self.settings.max_tokens)
        with self.budget.reserve(most) as reservation:
            try:
                response = self._post(body)
            except NoConnection:
                reservation.report(Tokens(0, 0))
                raise
            return self._read(response, prompt, reservation)

    def _post(self, body: bytes) -> Response:
        settings = self.settings
        key = os.environ.get(settings.api_key_variable)
        headers = {"Content-Type": "application/json"}  # several servers refuse others
        if key:
            headers["Authorization"] = f"Bearer {key}"
        most = ENVELOPE_BYTES + BYTES_PER_TOKEN * settings.max_tokens
        return post(settings.url, body, headers, settings.timeout, most)

    def _body(self, prompt: Prompt, bad: BadReply | None) -> bytes:
        settings = self.settings
        messages = [{"role": "user", "content": prompt.text}]
        if bad is not None:  # the model sees what is wrong with its last reply
            messages += [
                {"role": "assistant", "content": bad.text[:MAX_SHOWN]},
                {"role": "user", "content": f"{bad.fault}. Reply again with one JSON object."},
            ]
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": messages,
            settings.token_limit: settings.max_tokens,
        }
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if settings.response_format == "json_object":
            body["response_format"] = {"type": "json_object"}
        elif settings.response_format == "json_schema":
            schema = {"name": "reply", "strict": True, "schema": prompt.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

    def _read(self, response: Response, prompt: Prompt, reservation: Reservation) -> Reply:
        status = response.status
        if 400 <= status < 500:  # refused, not answered
            reservation.report(Tokens(0, 0))
        if status in RETRIED:
            raise Failure(f"status {status}", wait_seconds(response.retry_after))
        record = json_object(response.content)
        if status != 200:
            raise self._error(prompt, f"status {status}{self._explained(status, record, prompt)}")
        if (usage := read_usage(record)) is not None:
            reservation.report(usage)
        return read_completion(record, prompt, self.settings.max_tokens)

    def _explained(self, status: int, record: dict[str, Any], prompt: Prompt) -> str:
        """Return the server's reason for a refusal, unless it quotes the prompt or the key."""
        if status in (401, 403):
            state = "is set" if os.environ.get(self.settings.api_key_variable) else "is not set"
            return f"; the environment variable {self.settings.api_key_variable} {state}"
        message = refusal(record)
        key = os.environ.get(self.settings.api_key_variable)
        if message is None:
            return ""
        message = message[:MAX_EXPLAINED]
        if quotes(message, prompt.text, QUOTED) or (key and quotes(message, key, QUOTED_KEY)):
            return ""
        return f": {printable(masked(message, prompt.text))[:300]}"


def refusal(record: dict[str, Any]) -> str | None:
    """Return the message of a server's refusal; None if it has none.

    OpenAI's API has the message in ``error``, servers made with FastAPI in ``detail``: as a text,
    an object, or a list of objects, of which the first is used.
    """
    said = record.get("error", record.get("detail"))
    if isinstance(said, list) and said:
        said = said[0]
    if isinstance(said, dict):
        said = said.get("message", said.get("msg"))
    return said if isinstance(said, str) else None


def quotes(message: str, text: str, size: int) -> bool:
    """Return whether a message repeats at least ``size`` letters and digits of a text in sequence.

    Case and all other characters are ignored. Words of the prompt's instructions count, too.
    """
    message, text = (re.sub(r"[\W_]", "", part).casefold() for part in (message, text))
    size = min(size, len(text) or size)
    ends = range(size, len(message) + 1)
    return any(message[end - size : end] in text for end in ends)


def masked(message: str, text: str) -> str:
    """Mask the words of a message that are in a prompt but not in its instructions."""
    words = {word.casefold() for word in re.findall(r"\w+", text)} - template_words()

    def shown(match: re.Match[str]) -> str:
        return "\u2026" if match[0].casefold() in words else match[0]

    return re.sub(r"\w+", shown, message)


def wait_seconds(header: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks to wait, from a number or a date."""
    if header is None:
        return None
    try:
        return seconds if math.isfinite(seconds := float(header)) and seconds >= 0 else None
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(header).timestamp() - time.time(), 0.0)
    except (IndexError, OverflowError, TypeError, ValueError):
        return None


def json_object(content: bytes) -> dict[str, Any]:
    """Return the JSON object of a response; {} if it is not one (an error page in HTML)."""
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def read_usage(record: dict[str, Any]) -> Tokens | None:
    """Return the usage of a request as the server reports it; None if it does not."""
    usage = record.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt, completion = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(prompt) is not int or type(completion) is not int:
        return None
    is_possible = 0 <= prompt < MAX_USAGE and 0 <= completion < MAX_USAGE
    return Tokens(prompt, completion) if is_possible else None


def read_completion(record: dict[str, Any], prompt: Prompt, max_tokens: int) -> Reply:
    """Return the reply in a chat completion.

    Raises:
        Failure: there is no reply, or it is not JSON of the schema.
        UserError: ``max_tokens`` were used up before the reply began.
    """
    try:
        choice = record["choices"][0]
        text, reason = choice["message"]["content"], choice.get("finish_reason")
    except (AttributeError, IndexError, KeyError, TypeError):
        raise Failure("a response that is not a chat completion") from None
    if reason == "length":
        if not text:
            raise UserError(f"max_tokens: {max_tokens} given, used up before the reply began")
        return Reply(None, False)
    if not isinstance(text, str):
        raise Failure("a reply that is not JSON")
    try:
        value = json.loads(bare(text))
    except (ValueError, RecursionError):
        raise BadReply("a reply that is not JSON", text, "That is not JSON") from None
    if (fault := misfit(value, prompt.schema)) is not None:
        raise BadReply("a reply that breaks the prompt's schema", text, f"Wrong: {fault}")
    return Reply(value, True)


def bare(text: str) -> str:
    """Return the JSON object in a reply, without the thoughts before it and the code fence."""
    text = text.rpartition("</think>")[2]
    return text[text.find("{") : text.rfind("}") + 1]
