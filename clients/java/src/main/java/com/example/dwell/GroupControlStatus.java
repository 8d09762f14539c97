package com.example.dwell;

/** The outcome of a cancel or reschedule in one group. */
public enum GroupControlStatus {
    /** The message is cancelled. */
    CANCELLED,
    /** It has another due time. */
    RESCHEDULED,
    /** A consumer has it. */
    IN_FLIGHT,
    /** It is a dead letter. */
    DEAD,
    /** The group does not have it. */
    ABSENT,
    /** A word that this version does not know. */
    UNKNOWN
}
