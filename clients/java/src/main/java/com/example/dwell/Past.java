package com.example.dwell;

/** What happens with a due time in the past. */
public enum Past {
    /** The message is due at once. */
    NOW,
    /** The request is refused. */
    REJECT
}
