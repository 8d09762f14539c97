package com.example.dwell;

import java.time.Instant;
import java.util.List;
import java.util.Map;

/** An answer of the broker. A field without a value is null, 0 or false. */
public abstract class Answer {
    private final Map<String, Object> fields;

    Answer(Map<String, Object> fields) {
        this.fields = fields;
    }

    /** {@return every field by its name in the HTTP API, also those that this version does not know} */
    public final Map<String, Object> fields() {
        return fields;
    }

    @Override
    public final String toString() {
        return getClass().getSimpleName() + fields;
    }

    final String string(String name) {
        return (String) fields.get(name);
    }

    final long number(String name) {
        return fields.get(name) instanceof Number number ? number.longValue() : 0;
    }

    final boolean is(String name) {
        return Boolean.TRUE.equals(fields.get(name));
    }

    final Instant time(String name) {
        return fields.get(name) instanceof String text ? Instant.parse(text) : null;
    }

    final List<Map<String, Object>> objects(String name) {
        return objects(fields, name);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return value instanceof Map<?, ?> ? (Map<String, Object>) value : Map.of();
    }

    static List<Map<String, Object>> objects(Map<String, Object> fields, String name) {
        return fields.get(name) instanceof List<?> items ? items.stream().map(Answer::object).toList() : List.of();
    }
}
