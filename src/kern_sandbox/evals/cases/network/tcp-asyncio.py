# Connects to the host's loopback from a coroutine.
import asyncio
async def talk():
    _, writer = await asyncio.open_connection("127.0.0.1", stage["tcp"])
    writer.write(stage["token"].encode())
    await writer.drain()
attempt(lambda: asyncio.run(talk()))
