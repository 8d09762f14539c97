package com.example.dwell;

/** The order of a list of messages. */
public enum ListOrder {
    /** Partition by partition. */
    PARTITION,
    /** By the time at which they are tried next. */
    DUE
}
