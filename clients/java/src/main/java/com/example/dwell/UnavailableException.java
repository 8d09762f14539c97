package com.example.dwell;

import java.util.Map;

/**
 * There was no answer, or none that is final, within {@link Client.Builder#retryFor}. The message
 * names the server, and the cause is the last failure. A push may be stored: push the same message
 * again.
 */
public final class UnavailableException extends DwellException {
    private static final long serialVersionUID = 1;

    /** Without an answer. */
    UnavailableException(String message, Throwable cause) {
        super(message, 0, Map.of("detail", message), cause);
    }

    /** After an answer that is not final. */
    UnavailableException(String message, DwellException last) {
        super(message, last.status(), last.problem(), last.status() == 0 ? last.getCause() : last);
        isRepeated = last.isRepeated;
        retryAfter = last.retryAfter;
    }
}
