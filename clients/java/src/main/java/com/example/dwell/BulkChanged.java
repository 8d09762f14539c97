package com.example.dwell;

/**
 * Progress of a bulk operation since its beginning.
 *
 * @param changed messages that were changed
 * @param passedOver messages left unchanged: a consumer has them, or they expire before the new due
 *     time
 */
public record BulkChanged(long changed, long passedOver) {}
