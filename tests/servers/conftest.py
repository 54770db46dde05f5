"""The fixtures that every test of servers may ask for."""

from tests.servers.fixtures import certificates, own_redis, proxy, redis_server, redis_url

__all__ = ["certificates", "own_redis", "proxy", "redis_server", "redis_url"]
