package com.example.dwell;

/** Does the work of a delivery. */
@FunctionalInterface
public interface Handler {
    /**
     * Returning acknowledges the message. An exception delivers it again after the backoff of the
     * topic, {@link Retry} after the given time, and {@link Bury} makes it a dead letter. The
     * thread is interrupted once another consumer may have the message.
     *
     * @param delivery the message
     * @throws Exception anything, as the reason of the failed attempt
     */
    void handle(Delivery delivery) throws Exception;
}
