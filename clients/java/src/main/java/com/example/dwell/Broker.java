package com.example.dwell;

import java.time.Duration;
import java.time.Instant;

/**
 * A broker that shares the store.
 *
 * @param member its name
 * @param version its version
 * @param here whether it is the one that answers
 * @param groups groups that it is a member of
 * @param demanded of these, those in which consumers want messages from it
 * @param waiting consumers that wait there
 * @param owned partitions that it owns, in all groups
 * @param walRecords records that wait in its write-ahead log
 * @param walBytes bytes of its write-ahead log on disk
 * @param walLimitBytes bytes that its write-ahead log may have; 0 without one
 * @param startedAt when it started, by its clock, or null
 * @param doing "serving", "buffering", "replaying", "restoring", "draining" or "unknown"
 * @param journalRecords records of its journal; 0 without one
 * @param journalBytes bytes of its journal on disk
 * @param clockAhead how far its clock is ahead of that of the store, or null
 * @param heardAt when its latest heartbeat was sent, or null
 */
public record Broker(
        String member,
        String version,
        boolean here,
        int groups,
        int demanded,
        int waiting,
        int owned,
        long walRecords,
        long walBytes,
        long walLimitBytes,
        Instant startedAt,
        String doing,
        long journalRecords,
        long journalBytes,
        Duration clockAhead,
        Instant heardAt) {
    static Broker of(Fields fields) {
        return new Broker(
                fields.text("member"),
                fields.text("version"),
                fields.is("here"),
                fields.count("groups"),
                fields.count("demanded"),
                fields.count("waiting"),
                fields.count("owned"),
                fields.number("wal_records"),
                fields.number("wal_bytes"),
                fields.number("wal_limit_bytes"),
                fields.time("started_at"),
                fields.text("doing"),
                fields.number("journal_records"),
                fields.number("journal_bytes"),
                fields.milliseconds("clock_ahead_ms"),
                fields.time("heard_at"));
    }
}
