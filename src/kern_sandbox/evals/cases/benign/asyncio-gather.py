# Waits for coroutines together.
#> [0, 1, 4, 9]
import asyncio
async def square(x):
    await asyncio.sleep(0.01)
    return x * x
async def main(): return await asyncio.gather(*map(square, range(4)))
print(asyncio.run(main()))
