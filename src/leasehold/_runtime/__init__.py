"""Makes flows happen: drivers for threads and for asyncio, the watchdog, wake-ups, identity."""
