package com.example.dwell;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Function;

/** The fields of an object in an answer. Fields that this version does not know are ignored. */
record Fields(Map<String, Object> map) {
    static final Fields NONE = new Fields(Map.of());

    @SuppressWarnings("unchecked")
    static Fields of(Object value) {
        return value instanceof Map<?, ?> ? new Fields((Map<String, Object>) value) : NONE;
    }

    boolean has(String name) {
        return map.get(name) != null;
    }

    String text(String name) {
        return map.get(name) instanceof String text ? text : null;
    }

    long number(String name) {
        return map.get(name) instanceof Number number ? number.longValue() : 0;
    }

    int count(String name) {
        return (int) number(name);
    }

    Integer countOrNull(String name) {
        return has(name) ? Integer.valueOf(count(name)) : null;
    }

    Long numberOrNull(String name) {
        return has(name) ? Long.valueOf(number(name)) : null;
    }

    Double decimalOrNull(String name) {
        return map.get(name) instanceof Number number ? Double.valueOf(number.doubleValue()) : null;
    }

    boolean is(String name) {
        return Boolean.TRUE.equals(map.get(name));
    }

    Instant time(String name) {
        return text(name) == null ? null : Instant.parse(text(name));
    }

    /** A field with whole milliseconds, or null. */
    Duration milliseconds(String name) {
        return has(name) ? Duration.ofMillis(number(name)) : null;
    }

    /**
     * One of the words of an enum, its UNKNOWN for a word that this version does not know, or null.
     */
    <E extends Enum<E>> E word(String name, Class<E> words) {
        if (text(name) == null) {
            return null;
        }
        try {
            return Enum.valueOf(words, text(name).toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            return Enum.valueOf(words, "UNKNOWN");
        }
    }

    Fields object(String name) {
        return of(map.get(name));
    }

    /** A nested object as a record, or null. */
    <T> T object(String name, Function<Fields, T> read) {
        return has(name) ? read.apply(object(name)) : null;
    }

    /** The items of a list as records. */
    <T> List<T> objects(String name, Function<Fields, T> read) {
        List<T> objects = new ArrayList<>();
        if (map.get(name) instanceof List<?> items) {
            items.forEach(item -> objects.add(read.apply(of(item))));
        }
        return Collections.unmodifiableList(objects);
    }

    List<Fields> objects(String name) {
        return objects(name, item -> item);
    }

    List<String> texts(String name) {
        return map.get(name) instanceof List<?> items
                ? items.stream().map(String::valueOf).toList()
                : List.of();
    }

    Map<String, Integer> countsByName(String name) {
        Map<String, Integer> counts = new LinkedHashMap<>();
        Fields object = object(name);
        object.map.keySet().forEach(key -> counts.put(key, object.count(key)));
        return Collections.unmodifiableMap(counts);
    }

    /** The values of a nested object as records. */
    <T> Map<String, T> objectsByName(String name, Function<Fields, T> read) {
        Map<String, T> objects = new LinkedHashMap<>();
        object(name).map.forEach((key, value) -> objects.put(key, read.apply(of(value))));
        return Collections.unmodifiableMap(objects);
    }

    Map<String, String> textsByName(String name) {
        Map<String, String> texts = new LinkedHashMap<>();
        object(name).map.forEach((key, value) -> texts.put(key, String.valueOf(value)));
        return Collections.unmodifiableMap(texts);
    }
}
