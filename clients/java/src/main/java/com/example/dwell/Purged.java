package com.example.dwell;

/**
 * The outcome of a purge.
 *
 * @param purged messages that were deleted
 * @param matching how many would be; 0 unless it was a dry run
 */
public record Purged(long purged, long matching) {}
