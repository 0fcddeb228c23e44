"""A bad line between a client and a server."""

import asyncio
import random

UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Resets a share of connections as they open and of what the client sends, and says 503 in
    place of a share of the answers.

    Over HTTP an answer is what it says 503 for; over a WebSocket it is the handshake, or any frame.
    """

    def __init__(self, port, share, seed=4):
        self.port, self.share, self.chance = port, share, random.Random(seed)
        self.resets = self.unavailable = 0

    async def start(self):
        self.listener = await asyncio.start_server(self.pass_on, "127.0.0.1", 0)
        return self.listener.sockets[0].getsockname()[1]

    def strikes(self, data=b""):
        """Whether this piece of data, or a connection, is hit."""
        return self.chance.random() < self.share

    async def pass_on(self, reader, writer):
        if self.strikes():
            self.resets += 1
            return writer.transport.abort()
        try:
            there, here = await asyncio.open_connection("127.0.0.1", self.port)
        except ConnectionError:
            return writer.transport.abort()
        await asyncio.gather(self.ask(reader, here, writer), self.answer(there, writer, here))

    async def ask(self, client, server, back):
        async for data in pieces(client):
            if self.strikes(data):
                self.resets += 1
                back.transport.abort()
                break
            server.write(data)
        server.close()

    async def answer(self, server, client, back):
        async for data in pieces(server):
            if self.strikes(data):
                self.unavailable += 1
                client.write(UNAVAILABLE)
                break
            client.write(data)
        client.close()
        back.close()


async def pieces(reader):
    try:
        while data := await reader.read(65536):
            yield data
    except ConnectionError:
        return
