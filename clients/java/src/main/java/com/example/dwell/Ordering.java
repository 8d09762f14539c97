package com.example.dwell;

/** The order of delivery within a topic. */
public enum Ordering {
    /** Messages are delivered when they are due. */
    NONE,
    /** The messages of a key are delivered one after the other. */
    KEY,
    /** A word that this version does not know. */
    UNKNOWN
}
