"""A picture of at most 256 colours: a third of the bytes, and a screen has few colours.

Invariant: the 256 most frequent colours stay exactly as they are; a rarer one (the edge of a
letter) becomes the nearest of them. The browser decodes and counts, because it is there.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from playwright.sync_api import Page

_COUNT = """async (source) => {
  const bitmap = await createImageBitmap(await (await fetch(source)).blob());
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  const pixels = new Uint32Array(canvas.getImageData(0, 0, width, height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) ?? 0) + 1);
  const kept = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 256).map(([pixel]) => pixel);
  const place = new Map(kept.map((pixel, i) => [pixel, i]));
  const parts = (p) => [p & 255, (p >> 8) & 255, (p >> 16) & 255];
  const known = kept.map(parts);
  const nearest = (pixel) => {
    const [r, g, b] = parts(pixel);
    let best = 0, least = Infinity;
    known.forEach(([x, y, z], i) => {
      const far = 2 * (r - x) ** 2 + 4 * (g - y) ** 2 + 3 * (b - z) ** 2;
      if (far < least) [best, least] = [i, far];
    });
    place.set(pixel, best);
    return best;
  };
  const rows = Uint8Array.from(pixels, (pixel) => place.get(pixel) ?? nearest(pixel));
  let text = "";
  for (let at = 0; at < rows.length; at += 8192) text += String.fromCharCode(...rows.subarray(at, at + 8192));
  return { width, height, palette: known.flat(), rows: btoa(text) };
}"""  # noqa: E501


def reduced(picture: bytes, blank: Page, rows: int | None = None) -> bytes:
    """A PNG as a PNG with a palette. ``blank``: a page to count in; ``rows``: keep only these."""
    source = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    found: dict[str, Any] = blank.evaluate(_COUNT, source)
    width, height = found["width"], min(found["height"], rows or found["height"])
    pixels = base64.b64decode(found["rows"])
    # Filter 0 for every row: the other filters only help where neighbours are numbers.
    lines = b"".join(b"\0" + pixels[y * width : (y + 1) * width] for y in range(height))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", bytes(found["palette"])),
            _chunk(b"IDAT", zlib.compress(lines, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
