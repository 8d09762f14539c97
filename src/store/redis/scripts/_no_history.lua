-- Which data a partition has, as in _history, in scripts whose callers need no history.
--   KEYS[#KEYS] T:gen
local gen = KEYS[#KEYS]
local there = redis.call('GETRANGE', gen, '0', '65')
