package com.example.dwell;

import java.time.LocalTime;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Locale;

/**
 * When a group delivers messages: {@code DeliveryWindow.of(LocalTime.of(9, 0), LocalTime.of(17,
 * 30)).days(Weekday.MON, Weekday.FRI).timeZone("Europe/Berlin")}. Its methods return changed
 * copies.
 *
 * @param days the days on which it opens; empty for every day
 * @param from when it opens, or null
 * @param to when it closes: on the next day, unless it is later than {@code from}; or null
 * @param timeZone the time zone of both, or null for UTC
 */
public record DeliveryWindow(List<Weekday> days, LocalTime from, LocalTime to, String timeZone) {
    /** Removes the window of a group: it is always open. */
    public static final DeliveryWindow ALWAYS = new DeliveryWindow(List.of(), null, null, null);

    /** Times are of whole minutes. */
    public DeliveryWindow {
        days = List.copyOf(days);
        Checks.that(isWhole(from) && isWhole(to), "from and to are times of whole minutes");
        Checks.that(from == null || !from.equals(to), "from and to are the same time");
    }

    /** Opens every day at a time, and closes at another one, by the clock of UTC. */
    public static DeliveryWindow of(LocalTime from, LocalTime to) {
        Checks.that(from != null && to != null, "a window has two times");
        return new DeliveryWindow(List.of(), from, to, null);
    }

    /** Opens on these days only. */
    public DeliveryWindow days(Weekday... days) {
        return new DeliveryWindow(List.of(days), from, to, timeZone);
    }

    /** By the clock of this time zone, such as "Europe/Berlin". */
    public DeliveryWindow timeZone(String timeZone) {
        return new DeliveryWindow(days, from, to, Checks.name("timeZone", timeZone));
    }

    private static boolean isWhole(LocalTime time) {
        return time == null || time.equals(time.truncatedTo(ChronoUnit.MINUTES));
    }

    static DeliveryWindow of(Fields fields) {
        List<Weekday> days = fields.texts("days").stream().map(DeliveryWindow::day).toList();
        return new DeliveryWindow(
                days, time(fields, "from"), time(fields, "to"), fields.text("time_zone"));
    }

    private static LocalTime time(Fields fields, String name) {
        return fields.text(name) == null ? null : LocalTime.parse(fields.text(name));
    }

    private static Weekday day(String name) {
        try {
            return Weekday.valueOf(name.toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            return Weekday.UNKNOWN;
        }
    }

    Body body() {
        return new Body()
                .with("days", days.isEmpty() ? null : days.stream().map(Checks::word).toList())
                .with("from", from == null ? null : from.toString())
                .with("to", to == null ? null : to.toString())
                .with("time_zone", timeZone);
    }
}
