package com.example.dwell;

/** Which occurrences that were missed are pushed later. */
public enum Missed {
    /** The last one. */
    LAST,
    /** None. */
    SKIP,
    /** All. */
    ALL,
    /** A word that this version does not know. */
    UNKNOWN
}
