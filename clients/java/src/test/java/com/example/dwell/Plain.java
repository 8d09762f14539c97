package com.example.dwell;

import static com.example.dwell.Lab.same;

import java.lang.reflect.RecordComponent;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** What a client returns, with the names and forms of the HTTP API. */
final class Plain {
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").withZone(ZoneOffset.UTC);

    /** Records whose fields stand beside those of the record that has them. */
    private static final Set<Class<?>> FLAT = Set.of(Counts.class, Contents.class);

    private Plain() {}

    static Object of(Object value) {
        if (value instanceof Outcome<?> outcome) {
            return outcome.isOk() ? of(outcome.value()) : Map.of("error", of(outcome.error()));
        } else if (value instanceof Delivery d) {
            return of(d);
        } else if (value instanceof Record record) {
            return fields(record);
        } else if (value instanceof DwellException e) {
            return of(e);
        } else if (value instanceof Iterable<?> items) {
            List<Object> plain = new ArrayList<>();
            items.forEach(item -> plain.add(of(item)));
            return plain;
        } else if (value instanceof Map<?, ?> map) {
            Map<Object, Object> plain = new LinkedHashMap<>();
            map.forEach((name, item) -> plain.put(name, of(item)));
            return plain;
        } else if (value instanceof Enum<?> word) {
            return word.name().toLowerCase(Locale.ROOT);
        } else if (value instanceof Instant time) {
            return TIME.format(time);
        } else if (value instanceof LocalTime time) {
            return time.toString();
        } else if (value instanceof Duration time) {
            return time.toMillis();
        } else if (value instanceof Integer number) {
            return number.longValue();
        }
        return value;
    }

    private static Map<String, Object> of(Delivery d) {
        Map<String, Object> plain = new LinkedHashMap<>();
        put(plain, "contents", d.contents());
        plain.putAll(
                Map.of(
                        "id",
                        d.id(),
                        "attempt",
                        (long) d.attempt(),
                        "partition",
                        (long) d.partition()));
        plain.putAll(Map.of("lateness_ms", d.lateness().toMillis(), "receipt", d.receipt()));
        return plain;
    }

    static Map<String, Object> of(DwellException e) {
        Map<String, Object> plain = new LinkedHashMap<>(e.problem());
        plain.put("kind", e instanceof UnavailableException ? "unavailable" : "refused");
        plain.put("status", (long) e.status());
        plain.put("type", e.type());
        plain.put("detail", e.detail());
        plain.put("request_id", e.requestId());
        plain.put("repeated", e.isRepeated());
        if (e instanceof PushManyException many) {
            plain.put("kind", "push_many");
            plain.put("results", of(many.results()));
        }
        return plain;
    }

    private static Map<String, Object> fields(Record record) {
        Map<String, Object> plain = new LinkedHashMap<>();
        if (record instanceof Backoff) {
            plain.put("kind", of(record.getClass().getSimpleName().toLowerCase(Locale.ROOT)));
        }
        for (RecordComponent component : record.getClass().getRecordComponents()) {
            try {
                put(plain, component.getName(), component.getAccessor().invoke(record));
            } catch (ReflectiveOperationException e) {
                throw new AssertionError(e);
            }
        }
        return plain;
    }

    private static void put(Map<String, Object> plain, String name, Object value) {
        String field = name.replaceAll("([A-Z])", "_$1").toLowerCase(Locale.ROOT);
        if (value == null) {
            return;
        } else if (FLAT.contains(value.getClass()) && !name.equals("totals")) {
            plain.putAll(fields((Record) value));
        } else if (value instanceof byte[] bytes) {
            plain.put("payload_text", new String(bytes, StandardCharsets.UTF_8));
            plain.put("payload_base64", Base64.getEncoder().encodeToString(bytes));
        } else if (value instanceof Duration) {
            plain.put(field + "_ms", of(value));
        } else if (name.equals("steps")) {
            plain.put("steps_ms", of(value));
        } else if (name.equals("deadLetter")) {
            plain.put("dead_letter", Map.of("topic", value));
        } else {
            plain.put(name.equals("className") ? "class" : field, of(value));
        }
    }

    /** Fails if something expected is not there; "&lt;x>" is any value. */
    static void differs(Object expected, Object actual) {
        differs("", expected, actual);
    }

    private static void differs(String place, Object expected, Object actual) {
        if (expected instanceof Map<?, ?> fields) {
            Map<String, Object> found = Fields.of(actual).map();
            fields.forEach((name, value) -> differs(place + "/" + name, value, found.get(name)));
        } else if (expected instanceof List<?> items) {
            same(place, items.size(), actual instanceof List<?> found ? found.size() : -1);
            for (int n = 0; n < items.size(); n++) {
                differs(place + "/" + n, items.get(n), ((List<?>) actual).get(n));
            }
        } else if (expected != null && !expected.toString().matches("<\\w+( \\w+)?>")) {
            same(place, expected, actual);
        }
    }
}
