package com.example.dwell;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.StringJoiner;

/** The fields of a request, as JSON or as a query. A value that is null has no field. */
final class Body {
    private final Map<String, Object> fields = new LinkedHashMap<>();

    Body with(String name, Object value) {
        if (value instanceof Duration time) {
            fields.put(name + "_ms", Checks.milliseconds(time));
        } else if (value instanceof Enum<?> word) {
            fields.put(name, Checks.word(word));
        } else if (value instanceof Body body) {
            fields.put(name, body.fields);
        } else if (value instanceof Instant time) {
            fields.put(name, time.toString());
        } else if (value != null) {
            fields.put(name, value);
        }
        return this;
    }

    /** JSON in which null has a meaning. */
    Body withNullable(String name, Object value) {
        fields.put(name, value);
        return this;
    }

    Body withAll(Body other) {
        fields.putAll(other.fields);
        return this;
    }

    boolean has(String name) {
        return fields.containsKey(name);
    }

    Map<String, Object> fields() {
        return fields;
    }

    byte[] json() {
        return Json.write(fields).getBytes(StandardCharsets.UTF_8);
    }

    /** What stands behind a path: empty, or "?" with the fields. */
    String query() {
        StringJoiner query = new StringJoiner("&", "?", "").setEmptyValue("");
        fields.forEach(
                (name, value) -> query.add(name + "=" + Transport.percent(value.toString())));
        return query.toString();
    }
}
