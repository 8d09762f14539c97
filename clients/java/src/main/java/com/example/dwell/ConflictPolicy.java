package com.example.dwell;

/** What a push does if the topic already has a message with its id. */
public enum ConflictPolicy {
    /** The push is a duplicate, and changes nothing. */
    KEEP,
    /** The push is refused. */
    REJECT,
    /** The new message takes the place of one that no consumer has. */
    REPLACE,
    /** A message that no consumer has gets the due time of the push. */
    DEBOUNCE,
    /** The new message follows one that is in flight, instead of one that does already. */
    AFTER
}
