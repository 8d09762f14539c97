package com.example.dwell;

/** The outcome of a push. */
public enum PushStatus {
    /** The message is stored. */
    STORED,
    /** It is stored, and in the journal of the broker. */
    JOURNALED,
    /** It is on the disk of the broker until the store is reachable. */
    BUFFERED,
    /** The message exists. */
    DUPLICATE,
    /** It took the place of another one. */
    REPLACED,
    /** The message that exists got the due time of this push. */
    DEBOUNCED,
    /** It was not accepted. */
    ERROR,
    /** A word that this version does not know. */
    UNKNOWN
}
