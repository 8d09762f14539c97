package com.example.dwell;

/** What takes turns in a group. */
public enum Fairness {
    /** Nothing: messages are delivered in the order of their due times. */
    NONE,
    /**
     * The keys that have due messages: each has its share of the deliveries, however many another
     * one has.
     */
    KEY,
    /** A word that this version does not know. */
    UNKNOWN
}
