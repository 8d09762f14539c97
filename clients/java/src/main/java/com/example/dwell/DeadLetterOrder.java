package com.example.dwell;

/** The order of a list of dead letters. */
public enum DeadLetterOrder {
    /** Partition by partition, the oldest death of each first. */
    PARTITION,
    /** The oldest death first. */
    OLDEST,
    /** The newest death first. */
    NEWEST
}
