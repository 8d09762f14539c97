package com.example.dwell;

/** The state of a cron job. */
public enum CronState {
    /** It pushes messages. */
    ACTIVE,
    /** It pushes nothing until it is resumed. */
    PAUSED,
    /** The broker cannot compute its next time. */
    FAILED,
    /** A word that this version does not know. */
    UNKNOWN
}
