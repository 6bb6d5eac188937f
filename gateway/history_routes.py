"""The routes of the simulated past: real models with prices, and one that nobody has priced.

Invariant: changing a value changes the events of every simulated week, so a seeded installation
would get them a second time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A circuit with the size of its answers; ``served`` is the dated model that answers."""

    provider: str
    model: str
    region: str
    served: str
    mean_ms: int


@dataclass(frozen=True, slots=True)
class Route:
    """A route with its targets, primary first, and its share of the tasks."""

    name: str
    share: float
    prompt: int
    answer: int
    targets: tuple[Target, ...]


_MINI = Target("openai", "gpt-4.1-mini", "us-east", "gpt-4.1-mini-2025-04-14", 1400)
_LARGE = Target("openai", "gpt-4.1", "us-east", "gpt-4.1-2025-04-14", 3800)
_SONNET = Target("anthropic", "claude-sonnet-4-5", "eu", "claude-sonnet-4-5-20250929", 4600)
_HAIKU = Target("anthropic", "claude-haiku-4-5", "eu", "claude-haiku-4-5-20251001", 1600)
_FLASH = Target("google", "gemini-2.5-flash", "europe-west2", "gemini-2.5-flash", 1700)
_SMALL = Target("mistral", "mistral-small-latest", "eu", "mistral-small-latest", 1500)
_LLAMA = Target("groq", "llama-3.3-70b-versatile", "", "llama-3.3-70b-versatile", 800)
# Served on the operator's own machines: nobody has written a price for it.
_OWN = Target("vllm", "qwen3-32b", "on-prem", "qwen3-32b", 2600)

ROUTES = (
    Route("assistant", 0.44, 1400, 320, (_MINI, _HAIKU)),
    Route("code-review", 0.12, 5200, 900, (_LARGE, _SONNET)),
    Route("extraction", 0.24, 2600, 180, (_FLASH, _SMALL)),
    Route("summaries", 0.18, 3400, 260, (_LLAMA, _SMALL)),
    Route("internal-search", 0.02, 900, 120, (_OWN,)),
)
