"""What goes over the wall's socket: a whole snapshot, then only what changed since.

Invariant: a patch holds exactly the fields that differ between the board sent before on this
connection and the new one, so applying every frame in order gives the newest board. ``version``
with ``at`` orders boards across connections and processes of one ``epoch``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dashboard.board import Board
from dashboard.cards import Fields


def snapshot(board: Board) -> dict[str, Any]:
    """Everything."""
    return _head("snapshot", board) | {
        "density": board.density,
        "strip": board.strip,
        "titles": board.titles,
        "gateways": board.gateways,
        "cards": board.cards,
        "order": board.order,
    }


def news(board: Board) -> dict[str, Any]:
    """Something was committed: who shows anything else of this database reads it anew."""
    return _head("news", board)


def patch(before: Board, board: Board) -> dict[str, Any] | None:
    """What changed; None when a viewer would see no difference."""
    changed: dict[str, Any] = {}
    for name in ("strip", "titles"):
        if fields := _changed(getattr(before, name), getattr(board, name)):
            changed[name] = fields
    for name in ("gateways", "cards"):
        old, new = getattr(before, name), getattr(board, name)
        if each := _changed_each(old, new):
            changed[name] = each
        if gone := [key for key in old if key not in new]:
            changed[f"{name}_gone"] = gone
    if before.order != board.order:
        changed["order"] = board.order
    if before.density != board.density:
        changed["density"] = board.density
    return _head("patch", board) | changed if changed else None


def ping(board: Board, now: datetime, *, lost: bool = False) -> dict[str, Any]:
    """Nothing changed; how old what is shown is. ``now`` is this server's clock.

    ``lost``: the server cannot read anything newer at present.
    """
    return _head("ping", board) | {"age_s": age_s(board, now), "lost": lost}


def age_s(board: Board, now: datetime) -> float:
    """How old a board is by this server's clock."""
    return max(0.0, (now - board.at).total_seconds())


def aged(text: str, board: Board, now: datetime) -> str:
    """A frame's text with its board's age when it is sent: the text itself is shared, and may be of
    a board that nothing newer has followed for long.
    """
    return f'{{"age_s":{age_s(board, now):.3f},{text[1:]}'


class Shared:
    """The newest board's frames as text, each made once for all who were sent the same board."""

    def __init__(self) -> None:
        self._board: Board | None = None
        # By identity, with the board itself, so that no other can have its identity meanwhile.
        self._texts: dict[int, tuple[Board | None, str | None]] = {}

    def frame(self, before: Board | None, board: Board) -> str | None:
        """A snapshot without ``before``, else a patch; None when a viewer would see no change."""
        if board is not self._board:
            self._board, self._texts = board, {}
        if id(before) not in self._texts:
            frame = snapshot(board) if before is None else patch(before, board)
            self._texts[id(before)] = before, None if frame is None else encode(frame)
        return self._texts[id(before)][1]


def encode(frame: dict[str, Any]) -> str:
    """JSON text."""
    return msgspec.json.encode(frame).decode()


def _head(kind: str, board: Board) -> dict[str, Any]:
    return {
        "type": kind,
        "version": board.version,
        "epoch": board.epoch,
        "at": board.at.isoformat(timespec="milliseconds"),
    }


def _changed(old: Fields, new: Fields) -> Fields:
    if old is new:
        return {}
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    # A field that a card has no more (it became a tile) is taken back.
    return changed | {key: None for key in old if key not in new and old[key] is not None}


def _changed_each(old: dict[str, Fields], new: dict[str, Fields]) -> dict[str, Fields]:
    found: dict[str, Fields] = {}
    for key, fields in new.items():
        changed = _changed(old[key], fields) if key in old else fields
        if changed or key not in old:
            found[key] = changed
    return found
