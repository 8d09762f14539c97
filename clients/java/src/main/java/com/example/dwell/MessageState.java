package com.example.dwell;

/** Where a message is in a group. */
public enum MessageState {
    /** It is not due. */
    SCHEDULED,
    /** It is due, and the next consumer may have it. */
    READY,
    /** It is due, behind an earlier message of its key. */
    BLOCKED,
    /** It holds its key until its next attempt. */
    BACKOFF,
    /** A consumer has it. */
    IN_FLIGHT,
    /** It is a dead letter. */
    DEAD,
    /** A word that this version does not know. */
    UNKNOWN
}
