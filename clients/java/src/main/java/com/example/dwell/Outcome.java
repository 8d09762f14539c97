package com.example.dwell;

/**
 * What a call about many messages did with one of them: {@code value} or {@code error} is null.
 *
 * @param <T> what the call returns for one message
 * @param message the message
 * @param value what the call returned
 * @param error why it failed
 */
public record Outcome<T>(MessageRef message, T value, DwellException error) {
    /** {@return whether the call had success with this message} */
    public boolean isOk() {
        return error == null;
    }
}
