"""Verdicts on what providers send: one row an answer, beside those of the public case files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.domain.classify import (
    Cause,
    Context,
    Fault,
    Observation,
    Phase,
    StreamEvent,
    StreamProgress,
    classify,
)
from controlplane.domain.verdict import Kind, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def verdict(provider: str = "openai", **seen: Any) -> Verdict:
    return classify(Observation(provider, NOW, **seen))


def brief(given: Verdict) -> str:
    """``kind counts scope reason``, with a minus where it does not count."""
    counts = "+" if given.counts_against_breaker else "-"
    return f"{given.kind} {counts} {given.scope} {given.reason}"


def error(message: str = "", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


QUOTA = "permanent - key quota_exhausted"
RATE = "retryable + key rate_limited"
AUTH = "permanent - key auth"
PERMISSION = "permanent - key permission"
FILTERED = "permanent - request content_filtered"
CONTEXT = "permanent - request context_length"
TOO_LARGE = "permanent - request request_too_large"
NO_MODEL = "permanent - model model_not_found"
MODEL_BUSY = "retryable + model model_overloaded"
BUSY = "retryable + provider overloaded"
SERVER = "retryable + provider server_error"
UPSTREAM = "retryable + model upstream_error"
INVALID = "permanent - request invalid_request"

GOOGLE_DAY = {
    "error": {
        "code": 429,
        "status": "RESOURCE_EXHAUSTED",
        "message": "You exceeded your current quota, please check your plan and billing details.",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "41s"},
        ],
    }
}
GOOGLE_MINUTE = {
    "error": {
        **GOOGLE_DAY["error"],
        "details": [
            {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel"}]},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "41s"},
        ],
    }
}


@pytest.mark.parametrize(
    ("provider", "status", "body", "expected"),
    [
        # used-up money and used-up minutes
        ("openai", 429, error("You exceeded your current quota, please check your plan and "
         "billing details.", type="insufficient_quota", code="insufficient_quota"), QUOTA),
        ("azure_openai", 429, error("Quota.", type="insufficient_quota", code="429"), QUOTA),
        ("openai", 429, error("Billing hard limit has been reached",
         code="billing_hard_limit_reached"), QUOTA),
        ("gemini", 429, GOOGLE_DAY, QUOTA),
        ("gemini", 429, GOOGLE_MINUTE, RATE),
        ("gemini", 429, [GOOGLE_MINUTE], RATE),
        ("vertex_ai", 429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
         "Resource exhausted. Please try again later."}}, RATE),
        ("mistral", 429, {"message": "Requests rate limit exceeded"}, RATE),
        ("mistral", 429, {"object": "error", "message": "Service tier capacity exceeded for this "
         "model.", "type": "service_tier_capacity_exceeded", "code": "3505"}, MODEL_BUSY),
        ("moonshot", 429, error("", type="exceeded_current_quota_error"), QUOTA),
        ("deepseek", 402, error("Insufficient Balance"), QUOTA),
        ("xai", 403, {"code": "The caller does not have permission", "error": "Your team has "
         "either used all available credits or reached its monthly spending limit."},
         "permanent - key spend_cap"),
        ("anthropic", 400, error("You have reached your specified API usage limits. You will "
         "regain access on 2026-02-01 at 00:00 UTC.", type="invalid_request_error"),
         "permanent - key spend_cap"),
        ("openrouter", 429, error("Rate limit exceeded: free-models-per-day", code=429), QUOTA),
        ("openrouter", 429, {"error": {"code": 429, "message": "Provider returned error",
         "metadata": {"raw": "x is temporarily rate-limited upstream. Please retry shortly."}}},
         "retryable + model rate_limited"),
        ("azure_openai", 429, error("Requests to this operation have exceeded call rate limit of "
         "your current pricing tier. Please retry after 6 seconds. See https://aka.ms/oai/"
         "quotaincrease", code="429"), RATE),
        ("groq", 429, error("Rate limit reached for model `m` on tokens per day (TPD): Limit "
         "100000, Used 99900, Requested 500. Please try again in 5m45s.",
         code="rate_limit_exceeded"), RATE),
        ("bedrock", 400, {"__type": "com.amazon.coral.service#ThrottlingException",
         "message": "Too many requests"}, RATE),
        ("bedrock", 429, {"__type": "ThrottlingException", "message": "Too many tokens per day, "
         "please wait before trying again."}, QUOTA),
        ("bedrock", 400, {"__type": "ServiceQuotaExceededException", "message": "x"}, QUOTA),
        ("anthropic", 429, error("This request would exceed your organization's rate limit of "
         "30,000 input tokens per minute.", type="rate_limit_error"), RATE),
        ("openai", 429, "<html><title>429 Too Many Requests</title></html>", RATE),
        ("openai_compatible", 429, "error code: 1015", RATE),
        # a request that never fits
        ("groq", 413, error("Request too large for model `m` on tokens per minute (TPM): Limit "
         "6000, Requested 8053", type="tokens", code="rate_limit_exceeded"), TOO_LARGE),
        ("openai", 429, error("Limit 30,000, Used 0, Requested 342,389.", type="tokens",
         code="rate_limit_exceeded"), TOO_LARGE),
        ("anthropic", 413, error("Request exceeds the maximum size", type="request_too_large"),
         TOO_LARGE),
        ("anthropic", 400, error("prompt is too long: 210000 tokens > 200000 maximum",
         type="invalid_request_error"), CONTEXT),
        ("gemini", 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "The "
         "input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}},
         CONTEXT),
        ("bedrock", 400, {"__type": "ValidationException", "message":
         "Input is too long for requested model."}, CONTEXT),
        ("mistral", 400, {"message": "Prompt contains 40000 tokens, too large for model with 32768 "
         "maximum context length", "type": "invalid_request_error", "code": "3051"}, CONTEXT),
        # content
        ("azure_openai", 400, error("The response was filtered due to the prompt triggering the "
         "content management policy. Please modify your prompt and retry.", code="content_filter"),
         FILTERED),
        ("openai", 400, error("Your request was rejected as a result of our safety system.",
         code="content_policy_violation"), FILTERED),
        ("dashscope", 400, {"code": "DataInspectionFailed", "message": "x"}, FILTERED),
        ("gemini", 200, {"promptFeedback": {"blockReason": "SAFETY"}}, FILTERED),
        ("azure_openai", 200, {"choices": [{"message": {"content": ""},
         "finish_reason": "content_filter"}]}, FILTERED),
        # keys and accounts
        ("openai", 401, error("Incorrect API key provided", type="invalid_request_error",
         code="invalid_api_key"), AUTH),
        ("gemini", 400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key "
         "not valid. Please pass a valid API key.", "details": [{"reason": "API_KEY_INVALID"}]}},
         AUTH),
        ("anthropic", 400, error("This organization has been disabled.",
         type="invalid_request_error"), AUTH),
        ("azure_openai", 401, {"statusCode": 401, "message": "Unauthorized"}, AUTH),
        ("anthropic", 403, error("Your API key does not have permission to use the resource.",
         type="permission_error"), PERMISSION),
        ("bedrock", 403, {"__type": "AccessDeniedException", "message": "x"}, PERMISSION),
        ("bedrock", 403, {"__type": "ExpiredTokenException", "message": "x"}, AUTH),
        ("openai", 403, error("Country, region, or territory not supported",
         code="unsupported_country_region_territory"), PERMISSION),
        # models
        ("anthropic", 404, error("model: claude-2", type="not_found_error"), NO_MODEL),
        ("gemini", 404, {"error": {"code": 404, "status": "NOT_FOUND", "message":
         "models/gemini-1.0-pro is not found for API version v1beta"}}, NO_MODEL),
        ("azure_openai", 404, error("The API deployment does not exist", code="DeploymentNotFound"),
         NO_MODEL),
        ("groq", 400, error("The model `m` has been decommissioned and is no longer supported.",
         code="model_decommissioned"), NO_MODEL),
        ("openrouter", 404, error("No endpoints found for x/y.", code=404), NO_MODEL),
        ("openrouter", 400, error("x/y is not a valid model ID", code=400), NO_MODEL),
        ("bedrock", 400, {"__type": "ValidationException", "message":
         "The provided model identifier is invalid."}, NO_MODEL),
        ("openai", 404, error("File not found", type="invalid_request_error"),
         "permanent - request not_found"),
        # the provider's own faults
        ("bedrock", 429, {"__type": "ModelNotReadyException"}, "retryable + model model_not_ready"),
        ("bedrock", 424, {"__type": "ModelErrorException"}, "retryable + model model_error"),
        ("bedrock", 503, {"__type": "ServiceUnavailableException"}, BUSY),
        ("openai", 503, error("x", code="server_is_overloaded"), BUSY),
        ("openai", 429, error("The engine is currently overloaded, please try again later"), BUSY),
        ("openai", 429, error("Resource Unavailable", code="resource_unavailable"), MODEL_BUSY),
        ("groq", 498, error("Flex tier capacity exceeded"), MODEL_BUSY),
        ("gemini", 500, {"error": {"code": 500, "status": "INTERNAL", "message": "x"}}, SERVER),
        ("gemini", 504, {"error": {"code": 504, "status": "DEADLINE_EXCEEDED", "message": "x"}},
         "retryable + provider timeout"),
        ("openai", 408, error("Request timed out"), "retryable + provider timeout"),
        ("openai_compatible", 400, error("Upstream request failed"), BUSY),
        ("openai_compatible", 400, error("Service temporarily unavailable"), BUSY),
        ("bedrock", 400, {"__type": "ValidationException", "message": "The system encountered an "
         "unexpected error during processing. Try your request again."}, BUSY),
        ("openrouter", 400, error("Provider returned error", code=400), INVALID),
        ("openai_compatible", 502, "<html><title>502 Bad Gateway</title></html>", SERVER),
        ("openai_compatible", 523, "<!DOCTYPE html><title>Origin is unreachable</title>", SERVER),
        ("openai_compatible", 503, "upstream connect error or disconnect/reset", BUSY),
        ("openai_compatible", 403, "<html><title>Just a moment...</title></html>",
         "permanent - provider blocked_at_edge"),
        ("openai_compatible", 500, "", SERVER),
        ("openai", 400, error("Invalid type for 'messages'", type="invalid_request_error"),
         INVALID),
        ("openai", 422, {"detail": [{"msg": "field required", "type": "missing"}]}, INVALID),
        ("openai", 418, None, INVALID),
        # errors in a 200
        ("openrouter", 200, {"error": {"code": 402, "message": "Insufficient credits"}}, QUOTA),
        ("openrouter", 200, {"choices": [{"finish_reason": "error", "message": {"content": ""}}]},
         UPSTREAM),
        ("openrouter", 200, {"choices": [{"error": {"code": 502, "message":
         "Provider returned error"}}]}, UPSTREAM),
        ("openrouter", 200, {"choices": []}, UPSTREAM),
        ("openai", 200, {"status": "failed", "error": {"code": "rate_limit_exceeded",
         "message": "x"}}, RATE),
        ("minimax", 200, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}},
         QUOTA),
        ("openai", 200, {"error": {"something": "nobody has seen"}}, SERVER),
        ("openai", 200, "<!doctype html><html>Log in</html>",
         "retryable + provider malformed_answer"),
        ("openai", 200, {"error": None, "status": "completed", "output": []},
         "success - request ok"),
        ("minimax", 200, {"base_resp": {"status_code": 0}, "choices": [{"finish_reason": "stop"}]},
         "success - request ok"),
        ("openai", 200, None, "success - request ok"),
        ("openai", 204, "", "success - request ok"),
        # capacity that all customers share is no key's own limit
        ("azure_openai", 429, error("The system is currently experiencing high demand and cannot "
         "process your request.", code="429"), BUSY),
        ("huggingface", 503, {"error": "Model x/y is currently loading", "estimated_time": 20.0},
         "retryable + model model_not_ready"),
        ("cohere", 429, {"message": "You are using a Trial key, which is limited to 10 API calls / "
         "minute. You can continue to use the Trial key for free."}, RATE),
        ("cohere", 429, {"message": "You are using a Trial key, which is limited to 1000 API calls "
         "/ month."}, QUOTA),
        ("anthropic", 400, error("input length and `max_tokens` exceed context limit: 190000 + "
         "20000 > 200000", type="invalid_request_error"), CONTEXT),
        ("gemini", 200, {"candidates": [{"finishReason": "RECITATION"}]}, FILTERED),
        ("openai", 200, {"object": "response", "status": "incomplete", "error": None,
         "incomplete_details": {"reason": "content_filter"}}, FILTERED),
        ("openai", 200, {"object": "response", "status": "incomplete", "error": None,
         "incomplete_details": {"reason": "max_output_tokens"}}, "success - request ok"),
        ("vllm", 200, {"object": "error", "type": "BadRequestError", "code": 400, "message":
         "This model's maximum context length is 4096 tokens."}, CONTEXT),
        ("openrouter", 200, {"id": "gen-1", "choices": None}, UPSTREAM),
        ("gemini", 200, [{"candidates": [{"content": {}}]}, {"error": {"code": 503, "status":
         "UNAVAILABLE", "message": "x"}}], BUSY),
        ("openai", 200, [{"error": "of one item"}, {"embedding": []}], "success - request ok"),
        ("openai", 200, '{"choices": [{"message": {"content": "hal',
         "retryable + provider malformed_answer"),
        ("openai", 200, '{"id": 1}\n{"id": 2}\n', "success - request ok"),
    ],
)  # fmt: skip
def test_it_reads_codes_and_messages_before_the_status(
    provider: str, status: int, body: Any, expected: str
) -> None:
    assert brief(verdict(provider, status=status, body=body)) == expected


DELTA = StreamEvent(None, {"choices": [{"delta": {"content": "Hi"}, "finish_reason": None}]})
STOP = StreamEvent(None, '{"choices": [{"delta": {}, "finish_reason": "stop"}]}')
DONE = StreamEvent(None, "[DONE]")
BUSY_EVENT = StreamEvent("error", {"type": "error", "error": {"type": "overloaded_error"}})


@pytest.mark.parametrize(
    ("events", "sent", "expected"),
    [
        ([DELTA, STOP, DONE], 2, "success - request ok"),
        ([DELTA, STOP], 2, "success - request ok"),
        ([DELTA, DONE], 2, "success - request ok"),
        ([DELTA], 2, "partial + provider truncated_stream"),
        ([], 0, "retryable + provider truncated_stream"),
        ([StreamEvent(comment="OPENROUTER PROCESSING")], 0,
         "retryable + provider truncated_stream"),
        ([BUSY_EVENT], 0, BUSY),
        ([DELTA, BUSY_EVENT], 2, "partial + provider overloaded"),
        ([DELTA, BUSY_EVENT, DONE], 2, "partial + provider overloaded"),
        ([StreamEvent("error", {"type": "error", "code": "rate_limit_exceeded", "message": "x"})],
         0, RATE),
        ([StreamEvent("response.failed", {"type": "response.failed", "response": {"error":
          {"code": "server_error", "message": "x"}}})], 0, SERVER),
        ([StreamEvent("throttlingException", {"message": "Too many requests"})], 0, RATE),
        ([StreamEvent(None, {"modelStreamErrorException": {"message": "x"}})], 9,
         "partial + model model_error"),
        ([StreamEvent(None, '{"error": {"code": 503, "status": "UNAVAILABLE", "message": "x"}}')],
         0, BUSY),
        ([DELTA, StreamEvent(None, {"error": {"code": 402, "message": "Insufficient credits"},
          "choices": [{"finish_reason": "error"}]})], 2, "partial - key quota_exhausted"),
        ([StreamEvent(None, {"candidates": [{"finishReason": "STOP"}]})], 5,
         "success - request ok"),
        ([StreamEvent("messageStop", {"stopReason": "end_turn"})], 5, "success - request ok"),
        ([StreamEvent("response.incomplete", {"type": "response.incomplete"})], 5,
         "success - request ok"),
        ([StreamEvent("error", "not json")], 0, SERVER),
        ([DELTA, StreamEvent("response.incomplete", '{"type":"response.incomplete","response":'
          '{"incomplete_details":{"reason":"content_filter"}}}')], 5,
          "partial - request content_filtered"),
    ],
)  # fmt: skip
def test_it_reads_a_stream_to_its_end(events: list[StreamEvent], sent: int, expected: str) -> None:
    context = Context(streaming=True, bytes_sent_to_client=sent)
    assert brief(verdict(status=200, stream=events, context=context)) == expected


def test_it_lays_a_lost_host_of_an_aggregator_on_the_model() -> None:
    lost = {"error": {"code": "server_error", "message": "Provider disconnected unexpectedly"}}
    stream = [DELTA, StreamEvent(None, lost)]
    assert brief(verdict("openrouter", status=200, stream=stream)) == UPSTREAM
    assert brief(verdict("openai", status=200, stream=stream)) == SERVER


def test_it_leaves_text_that_begins_like_an_object_alone() -> None:
    heard = {"status": 200, "body": "{laughs} Well, hello", "headers": {}}
    assert brief(verdict(**heard)) == "retryable + provider malformed_answer"
    heard["headers"] = {"content-type": "text/plain; charset=utf-8"}
    assert brief(verdict(**heard)) == "success - request ok"


def test_it_reads_raw_events_like_parsed_ones() -> None:
    raw = StreamProgress()
    raw.feed(None, b'{"choices":[{"delta":{"content":"an \\"error\\": {}"},"finish_reason":null}]}')
    assert (raw.error, raw.finished) == (None, False)
    raw.feed("error", b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}')
    assert brief(verdict("anthropic", status=200, stream=raw)) == BUSY


@pytest.mark.parametrize(
    ("fault", "context", "expected"),
    [
        (Fault(Phase.CONNECTING, Cause.REFUSED), Context(), "retryable + provider connect"),
        (Fault(Phase.TLS, Cause.RESET), Context(), "retryable + provider tls"),
        (Fault(Phase.TLS, Cause.CERTIFICATE), Context(), "permanent + provider certificate"),
        (Fault(Phase.RESOLVING, Cause.TIMEOUT), Context(), "retryable + provider dns"),
        (Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT), Context(), "retryable + provider timeout"),
        (Fault(Phase.READING_BODY, Cause.TIMEOUT), Context(bytes_sent_to_client=9),
         "partial + provider timeout"),
        (Fault(Phase.READING_BODY, Cause.CLOSED), Context(bytes_sent_to_client=9),
         "partial + provider reset"),
        (Fault(Phase.AWAITING_HEADERS, Cause.RESET, reused_connection=True), Context(),
         "retryable - request stale_connection"),
        (Fault(Phase.AWAITING_HEADERS, Cause.RESET, reused_connection=True,
               request_bytes_acked=10), Context(), "retryable + provider reset"),
        (Fault(Phase.AWAITING_HEADERS, Cause.RESET), Context(), "retryable + provider reset"),
        (Fault(Phase.AWAITING_HEADERS, Cause.NOT_PROCESSED), Context(),
         "retryable - request not_processed"),
        (Fault(Phase.CONNECTING, Cause.LOCAL_LIMIT), Context(),
         "local_fault - request local_limit"),
        (Fault(Phase.AWAITING_HEADERS, Cause.MALFORMED, reused_connection=True), Context(),
         "retryable + provider malformed_answer"),
        (Fault(Phase.READING_BODY, Cause.TOO_LARGE), Context(),
         "local_fault - request answer_too_large"),
        (Fault(Phase.TLS, Cause.UNTRUSTED), Context(),
         "local_fault - provider untrusted_certificate"),
        (Fault(Phase.POOL_CHECKOUT, Cause.TIMEOUT), Context(), "local_fault - request local_pool"),
        (Fault(Phase.READING_BODY, Cause.CANCELLED, self_inflicted=True), Context(),
         "local_fault - request local_cancelled"),
        (Fault(Phase.READING_BODY, Cause.RESET), Context(client_connected=False,
         bytes_sent_to_client=5), "client_cancelled - request client_cancelled"),
        (Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT), Context(caller_deadline_s=2, elapsed_s=2,
         provider_header_timeout_s=60), "client_deadline - request client_deadline"),
        (Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT), Context(caller_deadline_s=300, elapsed_s=60,
         provider_header_timeout_s=60), "retryable + provider timeout"),
        (Fault(Phase.AWAITING_HEADERS, Cause.TIMEOUT), Context(caller_deadline_s=60, elapsed_s=60,
         provider_header_timeout_s=60), "retryable + provider timeout"),
        (Fault(Phase.AWAITING_HEADERS, Cause.RESET), Context(caller_deadline_s=2, elapsed_s=2,
         provider_header_timeout_s=60), "retryable + provider reset"),
        (Fault(Phase.CONNECTING, Cause.CANCELLED, self_inflicted=True),
         Context(caller_deadline_s=1, elapsed_s=1), "client_deadline - request client_deadline"),
    ],
)  # fmt: skip
def test_it_tells_whose_doing_a_failed_connection_was(
    fault: Fault, context: Context, expected: str
) -> None:
    assert brief(verdict(fault=fault, context=context)) == expected


@pytest.mark.parametrize("cause", [Cause.UNTRUSTED, Cause.TOO_LARGE])
def test_it_does_not_try_again_what_a_person_has_to_mend_or_what_is_paid_for(cause: Cause) -> None:
    assert not verdict(fault=Fault(Phase.READING_BODY, cause)).retryable
    assert verdict(fault=Fault(Phase.READING_BODY, Cause.LOCAL_LIMIT)).retryable


def test_it_takes_a_failure_after_the_end_mark_as_a_whole_answer() -> None:
    fault = Fault(Phase.READING_BODY, Cause.RESET)
    given = verdict(status=200, stream=[DELTA, STOP, DONE], fault=fault)
    assert given.kind is Kind.SUCCESS


def test_it_finds_an_error_status_even_when_its_body_was_cut() -> None:
    given = verdict(status=503, fault=Fault(Phase.READING_BODY, Cause.RESET))
    assert brief(given) == BUSY


def test_it_keeps_the_servers_wait() -> None:
    given = verdict("gemini", status=429, body=GOOGLE_MINUTE)
    assert given.retry_after_s == 41
    given = verdict(status=503, headers={"Retry-After": "Thu, 01 Jan 2026 00:00:30 GMT"})
    assert given.retry_after_s == 30


@pytest.mark.parametrize(
    ("status", "says", "expected"),
    [
        (500, "false", "permanent + provider server_error"),
        (429, "false", "permanent + key rate_limited"),
        (400, "true", "retryable - request invalid_request"),
        (401, "true", AUTH),
    ],
)
def test_it_obeys_a_servers_outright_word(status: int, says: str, expected: str) -> None:
    assert brief(verdict(status=status, headers={"X-Should-Retry": says})) == expected
