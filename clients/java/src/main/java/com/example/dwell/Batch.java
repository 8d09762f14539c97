package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Messages that travel in one request. */
final class Batch {
    /** A batch has up to 1,000 messages and 8 MiB. */
    static final int MESSAGES = 1000;

    static final int BYTES = 7 << 20;

    private static final byte[] HEAD = "{\"messages\":[".getBytes(StandardCharsets.UTF_8);

    private final List<NewMessage> messages = new ArrayList<>();
    private long bytes;

    List<NewMessage> messages() {
        return messages;
    }

    /** An empty batch takes any message, so that the broker says what is too large. */
    boolean takes(NewMessage message) {
        return messages.isEmpty()
                || messages.size() < MESSAGES && bytes + message.encoded.length + 1 <= BYTES;
    }

    void add(NewMessage message) {
        messages.add(message);
        bytes += message.encoded.length + 1;
    }

    static byte[] json(List<NewMessage> messages) {
        int length = HEAD.length + 1;
        for (NewMessage message : messages) {
            length += message.encoded.length + 1;
        }
        byte[] json = new byte[length];
        System.arraycopy(HEAD, 0, json, 0, HEAD.length);
        int at = HEAD.length;
        for (NewMessage message : messages) {
            System.arraycopy(message.encoded, 0, json, at, message.encoded.length);
            at += message.encoded.length;
            json[at++] = ',';
        }
        json[at - 1] = ']';
        json[at] = '}';
        return json;
    }
}
