-- mark: read the marker of a node for Redlock, and let it live for another year.
--
--   KEYS   marker
--   ARGV   longest_ttl_ms
--   reply  {since_us now_us longest_ttl_ms}: as _marker says

local marker, announced, refresh = KEYS[1], tonumber(ARGV[1]), true
-- include _marker
return {since, now, longest}
