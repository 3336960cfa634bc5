-- How subscribers are told: by their channels and patterns at once.
local TELL, tells_patterns = 'PUBLISH', false
