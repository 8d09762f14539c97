package com.example.dwell;

/** What a bulk operation does with messages. */
public enum BulkAction {
    /** Cancels them. */
    CANCEL,
    /** Makes them due later. */
    POSTPONE,
    /** Makes them due earlier. */
    ADVANCE,
    /** Makes them due far in the future. */
    PARK,
    /** Gives parked messages their due times again. */
    UNPARK
}
