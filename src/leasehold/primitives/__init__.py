"""The nouns that users hold. Sync and asyncio shells of one primitive stand in one file, over one base."""
