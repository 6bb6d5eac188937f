"""Usage as providers and the servers that speak like them send it: what each shape comes to.

The shapes are those of the providers' own documents and of public bug reports; where a report has
numbers of a real call, they are its numbers. Columns: provider, answer, (input, cached_read,
cache_write, output, reasoning_in_output).
"""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.domain.usage import Tokens, tokens

OPENAI = [
    ("openai", {"usage": {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29,
     "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0}, "completion_tokens_details":
     {"reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0,
      "rejected_prediction_tokens": 0}}}, (19, 0, 0, 10, 0)),
    # Sound is part of both; predictions that were not taken are part of the completion.
    ("openai", {"usage": {"prompt_tokens": 120, "completion_tokens": 80, "total_tokens": 200,
     "prompt_tokens_details": {"audio_tokens": 100, "cached_tokens": 64},
     "completion_tokens_details": {"audio_tokens": 60, "rejected_prediction_tokens": 12}}},
     (56, 64, 0, 80, 0)),
    ("openai", {"usage": {"prompt_tokens": 1486, "completion_tokens": 651, "total_tokens": 2137,
     "prompt_tokens_details": {"cached_tokens": 1408, "audio_tokens": 0},
     "completion_tokens_details": {"reasoning_tokens": 512}}}, (78, 1408, 0, 651, 512)),
    # Cache writes, since they are billed: three disjoint parts of the prompt.
    ("openai", {"usage": {"prompt_tokens": 2600, "completion_tokens": 9, "total_tokens": 2609,
     "prompt_tokens_details": {"cached_tokens": 2000, "cache_write_tokens": 400}}},
     (200, 2000, 400, 9, 0)),
    ("openai", {"object": "response", "usage": {"input_tokens": 2600, "output_tokens": 90,
     "total_tokens": 2690, "input_tokens_details": {"cached_tokens": 2000,
     "cache_write_tokens": 400}, "output_tokens_details": {"reasoning_tokens": 64}}},
     (200, 2000, 400, 90, 64)),
    ("openai", {"object": "response", "usage": {"input_tokens": 36, "output_tokens": 87,
     "total_tokens": 123, "input_tokens_details": None, "output_tokens_details": None}},
     (36, 0, 0, 87, 0)),
    # Realtime and transcriptions write "token" where Responses write "tokens".
    ("openai", {"usage": {"type": "tokens", "input_tokens": 127, "output_tokens": 148,
     "total_tokens": 275, "input_token_details": {"cached_tokens": 64, "text_tokens": 119,
     "audio_tokens": 8}, "output_token_details": {"text_tokens": 30, "audio_tokens": 118}}},
     (63, 64, 0, 148, 0)),
    ("openai", {"usage": {"type": "duration", "seconds": 9}, "text": "hi"},
     (None, 0, 0, None, 0)),
    ("openai", {"object": "list", "data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}},
     (8, 0, 0, 0, 0)),
    ("openai", {"created": 1, "data": [], "usage": {"total_tokens": 1106, "input_tokens": 50,
     "output_tokens": 1056, "input_tokens_details": {"text_tokens": 10, "image_tokens": 40}}},
     (50, 0, 0, 1056, 0)),
    ("azure", {"choices": [], "usage": {"completion_tokens": 5, "prompt_tokens": 12,
     "total_tokens": 17, "prompt_tokens_details": None, "completion_tokens_details": None}},
     (12, 0, 0, 5, 0)),
    # Of two choices the provider gives the sum, of a refusal and of tool calls their tokens.
    ("openai", {"choices": [{"index": 0}, {"index": 1}], "usage": {"prompt_tokens": 10,
     "completion_tokens": 40, "total_tokens": 50}}, (10, 0, 0, 40, 0)),
]  # fmt: skip
ANTHROPIC = [
    ("anthropic", {"usage": {"input_tokens": 2095, "cache_creation_input_tokens": 2051,
     "cache_read_input_tokens": 2051, "cache_creation": {"ephemeral_5m_input_tokens": 51,
     "ephemeral_1h_input_tokens": 2000}, "output_tokens": 503, "server_tool_use":
     {"web_search_requests": 1}, "service_tier": "standard"}}, (2095, 2051, 2051, 503, 0)),
    ("anthropic", {"usage": {"input_tokens": 4, "cache_creation_input_tokens": None,
     "cache_read_input_tokens": None, "cache_creation": None, "output_tokens": 7,
     "server_tool_use": None, "service_tier": None}}, (4, 0, 0, 7, 0)),
    # Two ways to say the same writes; one that is 0 does not hide the other.
    ("anthropic", {"usage": {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_creation":
     {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 300}, "output_tokens": 7}},
     (4, 0, 300, 7, 0)),
    # All of the prompt was written to the cache, and nothing came out.
    ("anthropic", {"usage": {"input_tokens": 0, "cache_creation_input_tokens": 460,
     "cache_read_input_tokens": 0, "output_tokens": 0}}, (0, 0, 460, 0, 0)),
    ("anthropic", {"usage": {"input_tokens": 12, "output_tokens": 900,
     "output_tokens_details": {"thinking_tokens": 700}}}, (12, 0, 0, 900, 700)),
    # A compaction inside the call is billed but not in the counts at the top.
    ("anthropic", {"usage": {"input_tokens": 23000, "output_tokens": 1000, "iterations": [
     {"type": "compaction", "input_tokens": 180000, "output_tokens": 3500,
      "cache_read_input_tokens": 20}, {"type": "message", "input_tokens": 23000,
      "output_tokens": 1000}]}}, (203000, 20, 0, 4500, 0)),
    # Servers that speak Anthropic's way and add a total: it tells where the cache stands.
    ("glm", {"usage": {"input_tokens": 6, "cache_read_input_tokens": 30940,
     "cache_creation_input_tokens": 460, "output_tokens": 102, "total_tokens": 31508}},
     (6, 30940, 460, 102, 0)),
    ("glm", {"usage": {"input_tokens": 6, "output_tokens": 102, "total_tokens": 568,
     "cache_creation": {"ephemeral_5m_input_tokens": 460}}}, (6, 0, 460, 102, 0)),
    ("glm", {"usage": {"input_tokens": 31406, "cache_read_input_tokens": 30940,
     "cache_creation_input_tokens": 460, "output_tokens": 102, "total_tokens": 31508}},
     (6, 30940, 460, 102, 0)),
]  # fmt: skip
GOOGLE = [
    ("gemini", {"usageMetadata": {"promptTokenCount": 220, "candidatesTokenCount": 5,
     "thoughtsTokenCount": 185, "totalTokenCount": 410, "promptTokensDetails": [
     {"modality": "TEXT", "tokenCount": 220}]}}, (220, 0, 0, 190, 185)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 1000, "cachedContentTokenCount": 900,
     "candidatesTokenCount": 10, "totalTokenCount": 1010}}, (100, 900, 0, 10, 0)),
    ("vertex", {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3,
     "toolUsePromptTokenCount": 4000, "thoughtsTokenCount": 50, "totalTokenCount": 4062,
     "trafficType": "ON_DEMAND"}}, (4009, 0, 0, 53, 50)),
    # Blocked before a candidate, and stopped while thinking.
    ("gemini", {"usageMetadata": {"promptTokenCount": 40, "totalTokenCount": 40}},
     (40, 0, 0, 0, 0)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 40, "thoughtsTokenCount": 60,
     "totalTokenCount": 100}}, (40, 0, 0, 60, 60)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 5, "toolUsePromptTokenCount": 7,
     "thoughtsTokenCount": 4, "totalTokenCount": 20}}, (12, 0, 0, 8, 4)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 100, "toolUsePromptTokenCount": 7,
     "candidatesTokenCount": 10, "thoughtsTokenCount": 4, "totalTokenCount": 117}},
     (107, 0, 0, 10, 4)),
    ("gemini", {"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 3,
     "thoughtsTokenCount": 4, "totalTokenCount": 13}}, (10, 0, 0, 3, 3)),
    # A total that is less than its parts tells nothing of what was left out.
    ("gemini", {"usageMetadata": {"promptTokenCount": 50, "totalTokenCount": 40}},
     (50, 0, 0, None, 0)),
    # Through the OpenAI-compatible door thoughts are in the total alone; a real call.
    ("gemini", {"usage": {"completion_tokens": 102, "prompt_tokens": 758, "total_tokens": 1725}},
     (758, 0, 0, 967, 865)),
    ("google", {"usage": {"completion_tokens": 102, "prompt_tokens": 758, "total_tokens": 1725}},
     (758, 0, 0, 967, 865)),
    ("vertex_ai", {"usage": {"completion_tokens": 1, "prompt_tokens": 12, "total_tokens": 110,
     "completion_tokens_details": {"reasoning_tokens": 97}}}, (12, 0, 0, 98, 97)),
    # Interactions: the prompt holds the cached part, thoughts and tools stand beside.
    ("gemini", {"usage": {"total_tokens": 170, "total_input_tokens": 100, "total_cached_tokens": 80,
     "total_output_tokens": 20, "total_thought_tokens": 40, "total_tool_use_tokens": 10}},
     (30, 80, 0, 60, 40)),
    ("vertex", {"usage": {"totalTokens": 160, "totalInputTokens": 100, "totalOutputTokens": 20,
     "totalThoughtTokens": 40}}, (100, 0, 0, 60, 40)),
]  # fmt: skip
BEDROCK = [
    ("bedrock", {"output": {"message": {}}, "usage": {"inputTokens": 30, "outputTokens": 628,
     "totalTokens": 658}}, (30, 0, 0, 628, 0)),
    ("bedrock", {"usage": {"inputTokens": 13, "outputTokens": 7, "totalTokens": 4517,
     "cacheReadInputTokens": 4400, "cacheWriteInputTokens": 97}}, (13, 4400, 97, 7, 0)),
    ("bedrock", {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7},
     "metrics": {"latencyMs": 9}}}, (3, 0, 0, 4, 0)),
    ("bedrock", {"type": "message_stop", "amazon-bedrock-invocationMetrics": {
     "inputTokenCount": 8, "outputTokenCount": 3, "cacheReadInputTokenCount": 5,
     "cacheWriteInputTokenCount": 2}}, (8, 5, 2, 3, 0)),
]  # fmt: skip
COMPATIBLE = [
    # xAI and others leave reasoning out of the completion; the total tells. A real call.
    ("xai", {"usage": {"prompt_tokens": 10120, "completion_tokens": 1499, "total_tokens": 14428,
     "prompt_tokens_details": {"cached_tokens": 128}, "completion_tokens_details":
     {"reasoning_tokens": 2809}}}, (9992, 128, 0, 4308, 2809)),
    ("xai", {"usage": {"prompt_tokens": 12, "completion_tokens": 400, "completion_tokens_details":
     {"reasoning_tokens": 97}}}, (12, 0, 0, 497, 97)),
    ("xai", {"usage": {"input_tokens": 12, "output_tokens": 387, "total_tokens": 399,
     "input_tokens_details": {"cached_tokens": 2}, "output_tokens_details":
     {"reasoning_tokens": 386}}}, (10, 2, 0, 387, 386)),
    ("xai", {"usage": {"input_tokens": 12, "output_tokens": 1, "total_tokens": 399,
     "output_tokens_details": {"reasoning_tokens": 386}}}, (12, 0, 0, 387, 386)),
    ("mistral", {"usage": {"prompt_tokens": 801, "completion_tokens": 2, "total_tokens": 803,
     "prompt_tokens_details": {"cached_tokens": 768}}}, (33, 768, 0, 2, 0)),
    ("mistral", {"usage": {"prompt_tokens": 801, "completion_tokens": 2, "total_tokens": 803,
     "num_cached_tokens": 768}}, (33, 768, 0, 2, 0)),
    ("mistral", {"usage": {"prompt_tokens": 801, "completion_tokens": 2, "total_tokens": 803,
     "prompt_token_details": {"cached_tokens": 768}}}, (33, 768, 0, 2, 0)),
    ("groq", {"usage": {"queue_time": 0.03, "prompt_tokens": 18, "prompt_time": 0.0007,
     "completion_tokens": 556, "completion_time": 0.46, "total_tokens": 574, "total_time": 0.46}},
     (18, 0, 0, 556, 0)),
    ("groq", {"choices": [], "x_groq": {"id": "r", "usage": {"prompt_tokens": 18,
     "completion_tokens": 6, "total_tokens": 24}}}, (18, 0, 0, 6, 0)),
    ("deepseek", {"usage": {"prompt_tokens": 100, "completion_tokens": 30, "total_tokens": 130,
     "prompt_tokens_details": {"cached_tokens": 64}, "completion_tokens_details":
     {"reasoning_tokens": 20}, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}},
     (36, 64, 0, 30, 20)),
    # Moonshot: the cached count at the top, in streams the usage inside the choice; a real call.
    ("moonshot", {"usage": {"prompt_tokens": 2989, "completion_tokens": 4, "total_tokens": 2993,
     "cached_tokens": 2989}}, (0, 2989, 0, 4, 0)),
    ("moonshot", {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage":
     {"prompt_tokens": 1336, "completion_tokens": 31, "total_tokens": 1367, "cached_tokens": 1280,
      "prompt_tokens_details": {"cached_tokens": 1280}}}]}, (56, 1280, 0, 31, 0)),
    ("moonshot", {"usage": None, "choices": [{"usage": None}, {"usage": {"prompt_tokens": 3,
     "completion_tokens": 1, "total_tokens": 4}}]}, (3, 0, 0, 1, 0)),
    ("together", {"usage": {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
     "cached_tokens": 32}}, (18, 32, 0, 9, 0)),
    ("fireworks", {"usage": {"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
     "prompt_tokens_details": {"cached_tokens": 48}, "completion_tokens_details": None}},
     (2, 48, 0, 9, 0)),
    # Qwen: writes stand among the details of the prompt; its own API says input and output.
    ("qwen", {"usage": {"prompt_tokens": 1900, "completion_tokens": 5, "total_tokens": 1905,
     "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_input_tokens": 1889,
     "cache_creation": {"ephemeral_5m_input_tokens": 1889}, "cache_type": "ephemeral"}}},
     (11, 0, 1889, 5, 0)),
    ("dashscope", {"output": {"text": "hi"}, "usage": {"input_tokens": 100, "output_tokens": 20,
     "total_tokens": 120, "prompt_tokens_details": {"cached_tokens": 64}, "output_tokens_details":
     {"reasoning_tokens": 8}}}, (36, 64, 0, 20, 8)),
    ("openrouter", {"usage": {"completion_tokens": 2, "completion_tokens_details":
     {"reasoning_tokens": 0}, "cost": 0.95, "cost_details": {"upstream_inference_cost": 19},
     "is_byok": False, "prompt_tokens": 194, "prompt_tokens_details": {"cached_tokens": 0,
     "cache_write_tokens": 100, "audio_tokens": 0}, "total_tokens": 196}}, (94, 0, 100, 2, 0)),
    ("perplexity", {"usage": {"prompt_tokens": 14, "completion_tokens": 350, "total_tokens": 364,
     "citation_tokens": 900, "num_search_queries": 1, "search_context_size": "low",
     "cost": {"total_cost": 0.006}}}, (14, 0, 0, 350, 0)),
    # Deep research bills what it read and what it thought; its total knows neither. A real call.
    ("perplexity", {"usage": {"prompt_tokens": 33, "completion_tokens": 7163, "total_tokens": 7196,
     "citation_tokens": 20016, "num_search_queries": 19, "reasoning_tokens": 95305}},
     (20049, 0, 0, 102468, 95305)),
    ("cloudflare", {"result": {"response": "hi", "usage": {"prompt_tokens": 20,
     "completion_tokens": 4, "total_tokens": 24}}, "success": True}, (20, 0, 0, 4, 0)),
    # Another gateway before us: Claude's cache outside the prompt or inside; the total tells.
    ("portkey", {"usage": {"prompt_tokens": 6, "completion_tokens": 102, "total_tokens": 31508,
     "cache_read_input_tokens": 30940, "cache_creation_input_tokens": 460}},
     (6, 30940, 460, 102, 0)),
    ("litellm", {"usage": {"prompt_tokens": 31406, "completion_tokens": 102, "total_tokens": 31508,
     "prompt_tokens_details": {"cached_tokens": 30940, "cache_creation_tokens": 460},
     "cache_read_input_tokens": 30940, "cache_creation_input_tokens": 460}},
     (6, 30940, 460, 102, 0)),
    # Nothing but a prompt that is smaller than its cache says that they are disjoint.
    ("databricks", {"usage": {"prompt_tokens": 6, "completion_tokens": 102, "total_tokens": 108,
     "cache_read_input_tokens": 30940, "cache_creation_input_tokens": 0}}, (6, 30940, 0, 102, 0)),
    # Where the cache stands is told by the total alone; an unexplained rest explains nothing.
    ("proxy", {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 150,
     "prompt_tokens_details": {"cached_tokens": 40}}}, (100, 40, 0, 10, 0)),
    ("proxy", {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 180,
     "prompt_tokens_details": {"cached_tokens": 40}, "completion_tokens_details":
     {"reasoning_tokens": 30}}}, (100, 40, 0, 40, 30)),
    ("proxy", {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 130,
     "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens_details":
     {"reasoning_tokens": 20}}}, (80, 20, 0, 30, 20)),
    ("proxy", {"usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 115,
     "prompt_tokens_details": {"cached_tokens": 40}}}, (60, 40, 0, 10, 0)),
    ("proxy", {"usage": {"prompt_tokens": 10, "completion_tokens": 50,
     "completion_tokens_details": {"reasoning_tokens": 30}}}, (10, 0, 0, 50, 30)),
    ("proxy", {"usage": {"prompt_tokens": 10, "completion_tokens": 30,
     "completion_tokens_details": {"reasoning_tokens": 30}}}, (10, 0, 0, 30, 30)),
    ("proxy", {"usage": {"input_tokens": 100, "output_tokens": 5,
     "input_tokens_details": {"cached_tokens": 60}}}, (40, 60, 0, 5, 0)),
    ("one-api", {"usage": {"prompt_tokens": 6, "completion_tokens": 102, "total_tokens": 31048,
     "prompt_tokens_details": {"cached_tokens": 0}, "cache_read_input_tokens": 30940}},
     (6, 30940, 0, 102, 0)),
    ("bifrost", {"usage": {"prompt_tokens": 500, "completion_tokens": 2, "total_tokens": 502,
     "prompt_tokens_details": {"cached_read_tokens": 300, "cached_write_tokens": 100}}},
     (100, 300, 100, 2, 0)),
    # What proxies make of numbers: a total of 0, a whole float, digits as text, nulls.
    ("litellm", {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 0}},
     (10, 0, 0, 5, 0)),
    ("litellm", {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 0,
     "completion_tokens_details": {"reasoning_tokens": 100}}}, (10, 0, 0, 105, 100)),
    ("litellm", {"usage": {"prompt_tokens": 12.0, "completion_tokens": 3.0, "total_tokens": 15.0}},
     (12, 0, 0, 3, 0)),
    ("litellm", {"usage": {"prompt_tokens": "12", "completion_tokens": "3", "total_tokens": "15"}},
     (12, 0, 0, 3, 0)),
    ("litellm", {"usage": {"prompt_tokens": None, "completion_tokens": 3, "total_tokens": 15,
     "prompt_tokens_details": {"cached_tokens": None}}}, (None, 0, 0, 3, 0)),
]  # fmt: skip
OWN_WORDS = [
    # Cohere bills its billed units; the tokens beside them include what it adds by itself.
    ("cohere", {"usage": {"billed_units": {"input_tokens": 5, "output_tokens": 418},
     "tokens": {"input_tokens": 71, "output_tokens": 418}}}, (5, 0, 0, 418, 0)),
    ("cohere", {"type": "message-end", "delta": {"usage": {"billed_units": {"input_tokens": 17.0,
     "output_tokens": 12.0}, "tokens": {"input_tokens": 83, "output_tokens": 63}}}},
     (17, 0, 0, 12, 0)),
    ("cohere", {"embeddings": {"float": []}, "meta": {"billed_units": {"input_tokens": 12}}},
     (12, 0, 0, 0, 0)),
    ("cohere", {"event_type": "stream-end", "response": {"meta": {"tokens": {"input_tokens": 3,
     "output_tokens": 4}}}}, (3, 0, 0, 4, 0)),
    ("cohere", {"results": [], "meta": {"billed_units": {"search_units": 1}}},
     (None, 0, 0, None, 0)),
    ("cohere", {"usage": {"tokens": {"output_tokens": 4}}}, (None, 0, 0, 4, 0)),
    ("voyage", {"object": "list", "data": [], "usage": {"total_tokens": 10}}, (10, 0, 0, 0, 0)),
    ("minimax", {"choices": [], "usage": {"total_tokens": 107}}, (None, 0, 0, None, 0)),
    ("ollama", {"done": True, "prompt_eval_count": 26, "eval_count": 298}, (26, 0, 0, 298, 0)),
    ("ollama", {"done": True, "prompt_eval_count": 21, "prompt_eval_cached_count": 16,
     "eval_count": 971}, (5, 16, 0, 971, 0)),
    # On a hit in its cache the prompt's count is left out: not known, which is not 0.
    ("ollama", {"done": True, "eval_count": 298}, (None, 0, 0, 298, 0)),
    ("ollama", {"embeddings": [[0.1]], "prompt_eval_count": 8}, (8, 0, 0, 0, 0)),
    ("llamacpp", {"content": "hi", "tokens": [1, 2], "tokens_predicted": 12,
     "tokens_evaluated": 30, "tokens_cached": 41}, (30, 0, 0, 12, 0)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "answer", "expected"),
    [*OPENAI, *ANTHROPIC, *GOOGLE, *BEDROCK, *COMPATIBLE, *OWN_WORDS],
)
def test_it_reads_what_each_provider_sends(
    provider: str, answer: dict[str, Any], expected: tuple[int | None, ...]
) -> None:
    assert tokens(provider, answer) == Tokens(*expected)


CONTRADICTING = [
    ("anthropic", {"usage": {"input_tokens": 12, "output_tokens": 9,
     "output_tokens_details": {"thinking_tokens": 700}}}, (12, 0, 0, 9, 9)),
    ("openai", {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
     "completion_tokens_details": {"reasoning_tokens": 100}}}, (10, 0, 0, 5, 5)),
    ("openai", {"usage": {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105,
     "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 40}}},
     (0, 80, 40, 5, 0)),
    ("openai", {"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": -1}},
     (10, 0, 0, 5, 0)),
    ("anthropic", {"usage": {"input_tokens": 5, "output_tokens": 9, "iterations": [7,
     {"type": "compaction", "input_tokens": -5, "output_tokens": 1}]}}, (5, 0, 0, 10, 0)),
    ("anthropic", {"usage": {"input_tokens": -5, "output_tokens": 9, "iterations": [
     {"type": "compaction", "input_tokens": 5, "output_tokens": 1}]}}, (None, 0, 0, 10, 0)),
    ("openai", {"usage": {"prompt_tokens": "12a", "completion_tokens": 3}}, (None, 0, 0, 3, 0)),
    ("openai", {"usage": {"prompt_tokens": "\u0661", "completion_tokens": 3}}, (None, 0, 0, 3, 0)),
    ("openai", {"usage": {"prompt_tokens": "9" * 5000, "completion_tokens": 3}},
     (None, 0, 0, 3, 0)),
    ("ollama", {"prompt_eval_count": 4, "prompt_eval_cached_count": 9, "eval_count": 1},
     (0, 9, 0, 1, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "answer", "kept"), CONTRADICTING)
def test_it_keeps_what_it_can_of_counts_that_contradict_each_other_and_says_so(
    provider: str, answer: dict[str, Any], kept: tuple[int | None, ...]
) -> None:
    assert tokens(provider, answer) == Tokens(*kept, invalid=True)
