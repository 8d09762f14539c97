package com.example.dwell;

import java.security.SecureRandom;

/**
 * ULIDs that count up for a while. Those share all but the last three characters, so the broker
 * keeps messages that are pushed together in one partition.
 */
final class Ids {
    /**
     * A run ends after so many ids, and after this time, so that a slow producer spreads its
     * messages.
     */
    static final int RUN_IDS = 250;

    static final long RUN_MS = 5;

    private static final String DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final Ids IDS = new Ids();

    private long begun;
    private String prefix;
    private int used = RUN_IDS;

    Ids() {}

    /** A new ULID: sortable by time, unique. */
    static String next() {
        return IDS.next(System.currentTimeMillis());
    }

    synchronized String next(long now) {
        if (used == RUN_IDS || now < begun || now >= begun + RUN_MS) {
            StringBuilder random = new StringBuilder();
            RANDOM.ints(13, 0, 32).forEach(n -> random.append(DIGITS.charAt(n)));
            prefix = digits(now, 10) + random;
            begun = now;
            used = 0;
        }
        return prefix + digits(used++, 3);
    }

    private static String digits(long number, int count) {
        StringBuilder text = new StringBuilder();
        for (int shift = 5 * (count - 1); shift >= 0; shift -= 5) {
            text.append(DIGITS.charAt((int) (number >> shift & 31)));
        }
        return text.toString();
    }
}
