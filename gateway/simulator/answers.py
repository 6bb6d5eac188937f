"""What a simulated provider says: completions, streams, errors, in the OpenAI API's shapes.

Invariant: every text is filler made of fixed words; token counts follow from the request's size and
the drawn output length, so the same draw always gives the same bytes apart from its id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.simulator.scenario import Conditions, Fate

# model -> the dated name that the provider says it served. Names as genai-prices knows them.
MODELS: dict[str, dict[str, str]] = {
    "openai": {
        "gpt-4.1": "gpt-4.1-2025-04-14",
        "gpt-4.1-mini": "gpt-4.1-mini-2025-04-14",
    },
    "mistral": {
        "mistral-small-latest": "mistral-small-latest",
        "mistral-large-2512": "mistral-large-2512",
    },
    "groq": {
        "llama-3.1-8b-instant": "llama-3.1-8b-instant",
        "llama-3.3-70b-versatile": "llama-3.3-70b-versatile",
    },
}
_WORDS = ("alder", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple", "oak", "pine")
TOKENS_A_CHUNK = 8
CREATED = 1_767_225_600  # any fixed moment: nothing reads it


@dataclass(frozen=True, slots=True)
class Ask:
    """What a chat request asked, as far as the answer depends on it."""

    provider: str
    model: str
    stream: bool
    wants_usage: bool
    prompt_tokens: int
    cached_tokens: int
    limit: int
    tool: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None


def read_ask(provider: str, body: bytes) -> Ask | bytes:
    """Read a chat request; an error body for status 400 or 404 when it makes no sense."""
    try:
        asked = json.loads(body)
        model, messages = asked["model"], asked["messages"]
    except (ValueError, KeyError, TypeError):
        return error_body("you must provide a model and messages", "invalid_request_error", None)
    if not isinstance(model, str) or not isinstance(messages, list) or not messages:
        return error_body("messages must be a list", "invalid_request_error", None)
    if model not in MODELS[provider]:
        text = f"The model `{model[:100]}` does not exist"
        return error_body(text, "invalid_request_error", "model_not_found")
    options = asked.get("stream_options")
    limit = asked.get("max_tokens") or asked.get("max_completion_tokens") or 4096
    prompt = max(1, len(json.dumps(messages)) // 4)
    return Ask(
        provider=provider,
        model=model,
        stream=asked.get("stream") is True,
        wants_usage=isinstance(options, dict) and options.get("include_usage") is True,
        prompt_tokens=prompt,
        # Providers cache a prompt's beginning in blocks of 128 once it is longer than 1,024.
        cached_tokens=prompt // 2 // 128 * 128 if prompt > 1024 else 0,
        limit=limit if isinstance(limit, int) and limit > 0 else 4096,
        tool=_part(asked.get("tools"), "function"),
        schema=_part([asked.get("response_format")], "json_schema"),
    )


def _part(parts: Any, kind: str) -> Mapping[str, Any] | None:
    """The function of the first tool, or the schema of the answer, that a request names."""
    first = parts[0] if isinstance(parts, list) and parts else None
    inner = first.get(kind) if isinstance(first, dict) else None
    return inner if isinstance(inner, dict) else None


def example(schema: Any) -> Any:
    """The smallest value that fits a JSON schema of the common kinds."""
    schema = schema if isinstance(schema, dict) else {}
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: example(of) for name, of in (schema.get("properties") or {}).items()}
    simple: dict[Any, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "null": None}
    return simple.get(schema.get("type"), _WORDS[0])


def error_body(message: str, kind: str, code: str | None) -> bytes:
    """An error in the API's shape."""
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json.dumps({"error": error}).encode()


def error_for(fate: Fate, conditions: Conditions) -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers of an error answer."""
    wait = f"{conditions.retry_after_s:g}"
    if fate is Fate.RATE_LIMITED:
        text = f"Rate limit reached. Please try again in {wait}s."
        headers = {"retry-after": str(max(1, round(conditions.retry_after_s)))}
        return 429, error_body(text, "rate_limit_error", "rate_limit_exceeded"), headers
    if fate is Fate.QUOTA:
        text = "You exceeded your current quota, please check your plan and billing details."
        return 429, error_body(text, "insufficient_quota", "insufficient_quota"), {}
    if fate is Fate.SERVER_ERROR:
        text = "The server had an error while answering your request."
        return 500, error_body(text, "server_error", None), {}
    if fate is Fate.BAD_REQUEST:
        return 400, error_body("a value is out of range", "invalid_request_error", None), {}
    return 503, error_body("The engine is currently overloaded", "overloaded_error", None), {}


def usage(ask: Ask, output: int) -> dict[str, Any]:
    """The usage object of an answer with ``output`` tokens."""
    return {
        "prompt_tokens": ask.prompt_tokens,
        "completion_tokens": output,
        "total_tokens": ask.prompt_tokens + output,
        "prompt_tokens_details": {"cached_tokens": ask.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def completion(ask: Ask, answer_id: str, output: int) -> bytes:
    """A plain answer."""
    message: dict[str, Any] = {"role": "assistant", "content": _text(0, output)}
    finish = _finish(ask, output)
    if ask.tool is not None:
        arguments = json.dumps(example(ask.tool.get("parameters")))
        function = {"name": ask.tool.get("name"), "arguments": arguments}
        called = {"id": f"call-{answer_id}", "type": "function", "function": function}
        message, finish = {**message, "content": None, "tool_calls": [called]}, "tool_calls"
    elif ask.schema is not None:
        message["content"] = json.dumps(example(ask.schema.get("schema")))
    choice = {"index": 0, "message": message, "finish_reason": finish}
    whole = {**_frame(ask, answer_id, "chat.completion"), "choices": [choice]}
    return json.dumps({**whole, "usage": usage(ask, output)}).encode()


def stream_events(ask: Ask, answer_id: str, output: int) -> list[bytes]:
    """A streamed answer, one element for each moment at which something is sent."""
    frame = _frame(ask, answer_id, "chat.completion.chunk")
    if ask.wants_usage:
        frame["usage"] = None

    def event(delta: dict[str, str], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({**frame, "choices": [choice]}).encode() + b"\n\n"

    events = [event({"role": "assistant", "content": ""}, None)]
    for start in range(0, output, TOKENS_A_CHUNK):
        words = _text(start, min(TOKENS_A_CHUNK, output - start)) + " "
        events.append(event({"content": words}, None))
    last = event({}, _finish(ask, output))
    if ask.wants_usage:
        total = {**frame, "choices": [], "usage": usage(ask, output)}
        last += b"data: " + json.dumps(total).encode() + b"\n\n"
    return [*events, last + b"data: [DONE]\n\n"]


def _frame(ask: Ask, answer_id: str, kind: str) -> dict[str, Any]:
    served = MODELS[ask.provider][ask.model]
    return {"id": answer_id, "object": kind, "created": CREATED, "model": served}


def _finish(ask: Ask, output: int) -> str:
    return "length" if output >= ask.limit else "stop"


def _text(start: int, count: int) -> str:
    return " ".join(_WORDS[number % len(_WORDS)] for number in range(start, start + count))
