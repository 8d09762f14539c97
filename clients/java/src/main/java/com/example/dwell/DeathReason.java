package com.example.dwell;

/** Why a message is a dead letter. */
public enum DeathReason {
    /** Its attempts are used up. */
    MAX_ATTEMPTS,
    /** A consumer buried it. */
    BURIED,
    /** Its stored bytes cannot be read. */
    UNREADABLE,
    /** It expired. */
    EXPIRED,
    /** A word that this version does not know. */
    UNKNOWN
}
