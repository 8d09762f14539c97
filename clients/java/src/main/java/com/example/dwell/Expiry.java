package com.example.dwell;

/** What happens with a message that expires. */
public enum Expiry {
    /** It is deleted. */
    DROP,
    /** It becomes a dead letter. */
    BURY,
    /** A word that this version does not know. */
    UNKNOWN
}
