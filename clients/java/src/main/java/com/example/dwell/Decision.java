package com.example.dwell;

import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;

/** How a delivery ends: the request that says so, and the fields beside its receipt. */
record Decision(String verb, Map<String, Object> fields) {
    /** The longest message of a reason, in characters; the broker cuts longer ones. */
    private static final int MESSAGE = 1000;

    private static final int CLASS_BYTES = 256;
    private static final int STACK_BYTES = 4096;

    static Decision ack() {
        return new Decision("ack", Map.of());
    }

    /** It was not begun, so this is no attempt. */
    static Decision release() {
        return new Decision("release", Map.of());
    }

    static Decision interrupted() {
        return nack(
                new Body()
                        .with("delay", Duration.ZERO)
                        .with("reason", "the worker stopped before the handler had finished"));
    }

    /** What a handler threw. */
    static Decision failed(Throwable thrown, boolean hasDetails) {
        if (thrown instanceof Bury) {
            return nack(new Body().with("bury", true).with("reason", asked(thrown, hasDetails)));
        }
        if (thrown instanceof Retry retry) {
            return nack(
                    new Body()
                            .with("delay", retry.after)
                            .with("pause_key", retry.pausesKey ? true : null)
                            .with("reason", asked(thrown, hasDetails)));
        }
        return nack(new Body().with("reason", reason(thrown, message(thrown), hasDetails)));
    }

    boolean isBury() {
        return fields.containsKey("bury");
    }

    private static Decision nack(Body body) {
        return new Decision("nack", body.fields());
    }

    /**
     * The reason of an outcome that a handler chose: its text, with the details of the error behind
     * it, if there is one.
     */
    private static Object asked(Throwable thrown, boolean hasDetails) {
        String text = cut(thrown.getMessage());
        if (thrown.getCause() == null) {
            return text.isEmpty() ? null : text;
        }
        return reason(
                thrown.getCause(), text.isEmpty() ? message(thrown.getCause()) : text, hasDetails);
    }

    private static Object reason(Throwable thrown, String message, boolean hasDetails) {
        if (!hasDetails) {
            return message;
        }
        return new Body()
                .with("class", cut(thrown.getClass().getName(), CLASS_BYTES))
                .with("message", message)
                .with("stack", Stacks.text(thrown, STACK_BYTES));
    }

    private static String message(Throwable thrown) {
        String message = cut(thrown.getMessage());
        return message.isEmpty() ? thrown.getClass().getSimpleName() : message;
    }

    private static String cut(String text) {
        if (text == null) {
            return "";
        }
        int length = text.codePointCount(0, text.length());
        return text.substring(0, text.offsetByCodePoints(0, Math.min(length, MESSAGE)));
    }

    /** The beginning of a text: as many characters as fit into so many bytes. */
    static String cut(String text, int bytes) {
        CharBuffer in = CharBuffer.wrap(text);
        // An encoder stops before a character that does not fit.
        StandardCharsets.UTF_8
                .newEncoder()
                .onMalformedInput(java.nio.charset.CodingErrorAction.REPLACE)
                .encode(in, ByteBuffer.allocate(bytes), true);
        return text.substring(0, in.position());
    }
}
