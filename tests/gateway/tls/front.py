"""What stands before a provider in production: something that ends TLS and passes bytes on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Front:
    """Passes on to ``target``, a plain HTTP server's port, and notes what it saw."""

    port: int = 0
    target: int = 0
    server_names: list[str | None] = field(default_factory=list)
    protocols: list[str | None] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    open: int = 0

    @property
    def connections(self) -> int:
        """Handshakes that were finished."""
        return len(self.writers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.open += 1
        tls = writer.get_extra_info("ssl_object")
        self.protocols.append(tls.selected_alpn_protocol())
        behind, onward = await asyncio.open_connection("127.0.0.1", self.target)
        back = asyncio.create_task(_pass_on(behind, writer))
        try:
            await _pass_on(reader, onward)
        finally:
            self.open -= 1
            onward.close()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            writer.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, ssl.SSLError):
        writer.transport.abort()
    finally:
        writer.close()


@asynccontextmanager
async def standing(context: ssl.SSLContext) -> AsyncIterator[Front]:
    """A front with this certificate, its ``target`` still to be set."""
    front = Front()

    def asked_for(_: object, name: str | None, __: object) -> None:
        front.server_names.append(name)

    context.sni_callback = asked_for
    server = await asyncio.start_server(front.serve, "127.0.0.1", 0, ssl=context)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        for writer in front.writers:
            writer.transport.abort()
        await server.wait_closed()
