package com.example.dwell;

/**
 * How an attempt failed.
 *
 * @param className the class of the error, or null
 * @param message the message of the error
 * @param stack the stack trace, or null
 */
public record LastError(String className, String message, String stack) {
    static LastError of(Fields fields) {
        return new LastError(fields.text("class"), fields.text("message"), fields.text("stack"));
    }
}
