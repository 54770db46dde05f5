-- read: writes nothing, and runs on a replica too.
--
--   KEYS    value
--   reply   as _foreign and _look say

-- include _foreign
-- include _look
