package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Map;

/** A message that was pushed: one that is stored, or a delivery. */
public interface HasContents {
    /** {@return the id} */
    String id();

    /** {@return the partition that stores the message} */
    int partition();

    /** {@return when the message is due; null if its stored bytes cannot be read} */
    Instant dueAt();

    /** {@return what it carries} */
    Contents contents();

    /** {@return the payload} */
    default byte[] payload() {
        return contents().payload();
    }

    /** {@return the payload, read as UTF-8} */
    default String text() {
        return new String(payload(), StandardCharsets.UTF_8);
    }

    /**
     * Reads the payload as JSON.
     *
     * @return a {@link Map}, {@link java.util.List}, {@link String}, {@link Long}, {@link Double},
     *     {@link Boolean} or null; a whole number that is no long is a {@link java.math.BigInteger}
     * @throws IllegalArgumentException if the payload is not JSON, or nested more than 500 times
     */
    default Object json() {
        return Json.read(text());
    }

    /** {@return the key that it was pushed with, or null} */
    default String key() {
        return contents().key();
    }

    /** {@return the content type, such as "application/json", or null} */
    default String contentType() {
        return contents().contentType();
    }

    /** {@return the names and values that travel with the payload} */
    default Map<String, String> meta() {
        return contents().meta();
    }
}
