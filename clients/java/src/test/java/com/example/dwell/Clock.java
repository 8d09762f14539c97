package com.example.dwell;

import static com.example.dwell.Lab.check;
import static com.example.dwell.Lab.same;

import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Months of messages in milliseconds, on a broker whose time the tests move. */
final class Clock {
    private final BlockingQueue<List<Object>> handled = new LinkedBlockingQueue<>();

    private interface Body {
        void play(TestBroker broker) throws Exception;
    }

    private Clock() {}

    private static void play(Body body) throws Exception {
        try (TestBroker broker = new TestBroker()) {
            long began = System.nanoTime();
            body.play(broker);
            long took = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            System.out.println("java on the movable clock: " + took + " ms");
        }
    }

    private Lab.Running consume(TestBroker broker, String topic, Handler handler) {
        return new Lab.Running(
                new Worker(broker.client(), topic),
                d -> {
                    try {
                        handler.handle(d);
                    } finally {
                        handled.add(List.of(d.id(), d.attempt()));
                    }
                });
    }

    private List<Object> next() throws InterruptedException {
        List<Object> next = handled.poll(30, TimeUnit.SECONDS);
        check(next != null, "nothing was delivered");
        return next;
    }

    static void aReminderOf30Days() throws Exception {
        play(
                broker -> {
                    broker.client()
                            .push(
                                    "reminders",
                                    NewMessage.text("renew")
                                            .id("renew")
                                            .delay(Duration.ofDays(30))
                                            .build());
                    same(List.of(), broker.advance(Duration.ofDays(29)).due());
                    same(
                            List.of(new TestBroker.DueMessages("reminders", "default", 1)),
                            broker.advance(Duration.ofDays(1)).due());
                    Clock clock = new Clock();
                    try (Lab.Running running = clock.consume(broker, "reminders", d -> {})) {
                        same(List.of("renew", 1), clock.next());
                    }
                });
    }

    static void aLadderOfRetriesOverThreeHours() throws Exception {
        play(
                broker -> {
                    Backoff backoff =
                            Backoff.ladder(
                                    Duration.ofMinutes(30),
                                    Duration.ofHours(1),
                                    Duration.ofMinutes(90));
                    broker.client()
                            .createTopic(
                                    "payments", TopicSettings.builder().backoff(backoff).build());
                    Clock clock = new Clock();
                    try (Lab.Running running =
                            clock.consume(
                                    broker,
                                    "payments",
                                    d -> check(d.attempt() == 4, "no answer of the bank"))) {
                        broker.client().push("payments", NewMessage.text("pay").id("pay").build());
                        int attempt = 0;
                        for (int minutes : List.of(30, 60, 90, 0)) {
                            same(List.of("pay", ++attempt), clock.next());
                            // The worker's decision is with the broker a few milliseconds after the
                            // handler has ended.
                            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
                            while (running.worker.stats().count(Event.SETTLED) < attempt
                                    && System.nanoTime() - until < 0) {
                                Thread.sleep(1);
                            }
                            broker.advance(Duration.ofMinutes(minutes));
                        }
                        same(
                                Map.of(
                                        Event.DELIVERED,
                                        4L,
                                        Event.NACKED,
                                        3L,
                                        Event.ACKED,
                                        1L,
                                        Event.SETTLED,
                                        4L),
                                running.worker.stats().counts());
                    }
                });
    }

    static void aCronJobOfNextMarch() throws Exception {
        play(
                broker -> {
                    ZoneId berlin = ZoneId.of("Europe/Berlin");
                    broker.client()
                            .putCron(
                                    "reports",
                                    "spring",
                                    NewCronJob.cron("0 9 1 3 *")
                                            .timeZone(berlin)
                                            .text("report")
                                            .build());
                    int year = LocalDateTime.ofInstant(broker.now(), ZoneOffset.UTC).getYear() + 1;
                    Instant march = LocalDateTime.of(year, 3, 1, 8, 0).toInstant(ZoneOffset.UTC);
                    Clock clock = new Clock();
                    try (Lab.Running running = clock.consume(broker, "reports", d -> {})) {
                        TestBroker.Moved moved = broker.advanceTo(march);
                        same("spring", moved.fired().get(0).name());
                        check(!moved.now().isBefore(march), moved);
                        same(1, clock.next().get(1));
                    }
                });
    }
}
