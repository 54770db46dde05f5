-- eval: a script of the user's in place of BODY(), in one step with the rule. It finds its KEYS and ARGV as it would
-- without the guard, and its first line is the first line of what is sent.
--
--   KEYS   key ... record
--   ARGV   argument ... and what the rule takes
--   reply  {1 result}, {1} for nil  or as the rule says
--          error BODYFAILED message: it ran, and ended with an error; what it did before that is not undone

-- include _rule

local ended, result = pcall(function(...)
BODY()
end)
if not ended or type(result) == 'table' and result.err then
    local why = type(result) == 'table' and result.err or result
    local line = type(result) == 'table' and result.line
    return {err = 'BODYFAILED ' .. tostring(why) .. (line and ' (line ' .. line .. ')' or '')}
end
return {1, result}
