# Starts a program from a coroutine.
#> done 0
import asyncio
async def main():
    p = await asyncio.create_subprocess_exec("echo", "done", stdout=asyncio.subprocess.PIPE)
    out, _ = await p.communicate()
    print(out.decode().strip(), p.returncode)
asyncio.run(main())
