package com.example.dwell;

/** The outcome of a cancel or reschedule. */
public enum ControlStatus {
    /** The message is cancelled. */
    CANCELLED,
    /** It has another due time. */
    RESCHEDULED,
    /** That is so in some groups, and a consumer of another group has it. */
    PARTLY,
    /** A word that this version does not know. */
    UNKNOWN
}
