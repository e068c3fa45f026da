# Runs a blocking function on a thread from a coroutine, and times another out.
#> 7 late
import asyncio, time
async def main():
    seven = await asyncio.get_running_loop().run_in_executor(None, lambda: 7)
    try: await asyncio.wait_for(asyncio.sleep(30), 0.05)
    except asyncio.TimeoutError: print(seven, "late")
asyncio.run(main())
