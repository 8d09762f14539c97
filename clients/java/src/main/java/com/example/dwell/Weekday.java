package com.example.dwell;

/** A day of the week. */
public enum Weekday {
    /** Monday. */
    MON,
    /** Tuesday. */
    TUE,
    /** Wednesday. */
    WED,
    /** Thursday. */
    THU,
    /** Friday. */
    FRI,
    /** Saturday. */
    SAT,
    /** Sunday. */
    SUN,
    /** A word that this version does not know. */
    UNKNOWN
}
