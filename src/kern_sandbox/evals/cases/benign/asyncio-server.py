# Serves and asks over its own loopback.
#> olleh
import asyncio
async def reverse(reader, writer):
    writer.write((await reader.read(100))[::-1]); await writer.drain(); writer.close()
async def main():
    server = await asyncio.start_server(reverse, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello")
    print((await reader.read(100)).decode())
    writer.close(); server.close()
asyncio.run(main())
