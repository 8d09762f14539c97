package com.example.dwell;

import java.time.Duration;
import java.util.Locale;
import java.util.Objects;

/** Arguments that no broker accepts are refused before a request. */
final class Checks {
    private Checks() {}

    /** A topic, group, id, key or name. */
    static String name(String what, String text) {
        Objects.requireNonNull(text, what);
        if (text.isEmpty()) {
            throw new IllegalArgumentException(what + " is empty");
        }
        return text;
    }

    /** An id in a path. */
    static String id(String id) {
        return step("id", id);
    }

    /** A step of a path: there these two would name another path. */
    static String step(String what, String text) {
        if (name(what, text).equals(".") || text.equals("..")) {
            throw new IllegalArgumentException(what + " is \"" + text + "\"");
        }
        return text;
    }

    static Duration notNegative(String what, Duration time) {
        if (Objects.requireNonNull(time, what).isNegative()) {
            throw new IllegalArgumentException(what + " is negative: " + time);
        }
        return time;
    }

    static Duration positive(String what, Duration time) {
        if (notNegative(what, time).isZero()) {
            throw new IllegalArgumentException(what + " is zero");
        }
        return time;
    }

    static int between(String what, int low, int high, int number) {
        if (number < low || number > high) {
            throw new IllegalArgumentException(
                    what + " is " + number + ": expected " + low + " to " + high);
        }
        return number;
    }

    static void that(boolean condition, String otherwise) {
        if (!condition) {
            throw new IllegalArgumentException(otherwise);
        }
    }

    /** Rounds up, so that nothing is due early. */
    static long milliseconds(Duration time) {
        return time.plusNanos(999_999).toMillis();
    }

    /** The word of an enum in requests. */
    static String word(Enum<?> word) {
        that(!word.name().equals("UNKNOWN"), "UNKNOWN is only for answers");
        return word.name().toLowerCase(Locale.ROOT);
    }
}
