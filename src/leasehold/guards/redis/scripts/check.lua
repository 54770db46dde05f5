-- check: the rule, and nothing else.
--
--   KEYS   record
--   ARGV   what the rule takes
--   reply  {1}  or as the rule says

-- include _rule

return {1}
