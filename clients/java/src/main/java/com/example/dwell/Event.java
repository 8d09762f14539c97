package com.example.dwell;

/** Something that happened to a delivery, for metrics. */
public enum Event {
    /** Handed to this worker. */
    DELIVERED,
    /** Acknowledged. */
    ACKED,
    /** To be delivered again. */
    NACKED,
    /** A dead letter now. */
    BURIED,
    /** Given back before a handler had begun; that is no attempt. */
    RELEASED,
    /** The deadline was moved. */
    EXTENDED,
    /** Settled too late: another consumer may have the message. */
    STALE,
    /** Lost while the handler ran: another consumer may have the message. */
    LOST,
    /** A poll failed; it has no delivery. */
    POLL_FAILURES,
    /** A settlement had no answer. It is repeated until the deadline. */
    SETTLE_FAILURES,
    /** The end of a delivery, whatever its outcome. */
    SETTLED
}
