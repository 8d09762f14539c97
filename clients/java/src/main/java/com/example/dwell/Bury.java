package com.example.dwell;

/** Thrown by a handler whose message can never succeed: it becomes a dead letter. */
public final class Bury extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** Makes the message a dead letter, for this reason. */
    public Bury(String reason) {
        super(reason);
    }

    /** Makes the message a dead letter, with the details of the error behind it. */
    public Bury(String reason, Throwable cause) {
        super(reason, cause);
    }
}
