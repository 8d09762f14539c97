package com.example.dwell;

import java.util.List;
import java.util.stream.Stream;

/**
 * The name of a message, for calls about many.
 *
 * @param id the id
 * @param key the key that it was pushed with, or null
 */
public record MessageRef(String id, String key) {
    /** Neither is empty. */
    public MessageRef {
        Checks.id(id);
        if (key != null) {
            Checks.name("key", key);
        }
    }

    /** The names of messages that were pushed without a key. */
    public static List<MessageRef> ids(String... ids) {
        return Stream.of(ids).map(id -> new MessageRef(id, null)).toList();
    }
}
