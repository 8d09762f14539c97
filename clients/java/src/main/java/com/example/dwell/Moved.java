package com.example.dwell;

/**
 * Progress of a move to another topic since its beginning.
 *
 * @param moved messages that were moved, in each group
 * @param dead dead letters that were moved
 * @param duplicates messages whose id the other topic had: dropped as duplicates
 * @param inFlight messages that consumers have, and that are moved once they are settled
 * @param done whether nothing is left
 */
public record Moved(long moved, long dead, long duplicates, long inFlight, boolean done) {}
