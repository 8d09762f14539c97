package com.example.dwell;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Sends the decisions of a worker, and extends its deliveries. It never decides how a delivery
 * ends.
 */
final class Settler {
    /** The most deliveries of one request. */
    static final int BATCH = 1000;

    /** Decisions of a request, at most. */
    private static final int GATHERED = 100;

    private static final Set<String> SUCCESS =
            Set.of("acked", "nacked", "buried", "released", "extended", "pending");

    /** Of an extension: it is tried again until the deadline. */
    private static final Set<String> UNANSWERED = Set.of("unreachable", "failed");

    private static final System.Logger LOG = System.getLogger(Settler.class.getPackageName());

    private final Transport transport;
    private final String topic;
    private final String group;
    private final Slots slots;

    Settler(Transport transport, String topic, String group, Slots slots) {
        this.transport = transport;
        this.topic = topic;
        this.group = group;
        this.slots = slots;
    }

    String path(String verb) {
        return Transport.path("topics", topic, "groups", group, verb);
    }

    /**
     * Sends decisions until the worker is over. One request is under way at a time, and decisions
     * gather meanwhile.
     */
    void settle() throws InterruptedException {
        for (List<Delivery> batch = awaitBatch(); !batch.isEmpty(); batch = awaitBatch()) {
            String verb = batch.get(0).decision.verb();
            List<Object> receipts = new ArrayList<>();
            for (Delivery d : batch) {
                Map<String, Object> fields = new LinkedHashMap<>(Map.of("receipt", d.receipt()));
                fields.putAll(d.decision.fields());
                receipts.add(verb.equals("nack") ? fields : d.receipt());
            }
            List<Fields> verdicts =
                    ask(verb, batch, new Body().with("receipts", receipts)).verdicts();
            List<Delivery> sent = batch;
            slots.update(
                    () -> {
                        for (int n = 0; n < sent.size(); n++) {
                            settled(sent.get(n), verdicts.get(n), sent.size() > 1);
                        }
                    });
        }
    }

    /** The decisions to send now, once there are any. Empty at the end. */
    private List<Delivery> awaitBatch() throws InterruptedException {
        synchronized (slots) {
            while (true) {
                long now = System.nanoTime(), next = Slots.never();
                List<Delivery> batch = gathered(now);
                if (!batch.isEmpty() || slots.isOver) {
                    return batch;
                }
                for (Delivery d : slots.deliveries()) {
                    next = d.decision == null ? next : Slots.earlier(next, d.notBefore);
                }
                slots.await(next);
            }
        }
    }

    /** The decisions that can be sent at this time: one verb, those that were made first. */
    List<Delivery> gathered(long now) {
        List<Delivery> ready =
                slots.deliveries().stream()
                        .filter(d -> d.decision != null && d.notBefore - now <= 0)
                        .sorted((a, b) -> Long.signum(a.decidedAt - b.decidedAt))
                        .toList();
        if (ready.isEmpty() || ready.get(0).isAlone) {
            return ready.subList(0, Math.min(1, ready.size()));
        }
        String verb = ready.get(0).decision.verb();
        return ready.stream()
                .filter(d -> d.decision.verb().equals(verb) && !d.isAlone)
                .limit(GATHERED)
                .toList();
    }

    /** The verdicts of the broker, one for each delivery, and the error of the whole request. */
    private record Answer(List<Fields> verdicts, DwellException error) {
        static Answer alike(String status, List<Delivery> deliveries, DwellException error) {
            Fields verdict = new Fields(Map.of("status", status));
            return new Answer(deliveries.stream().map(d -> verdict).toList(), error);
        }

        /** Whether the same request would be refused again. */
        boolean isRefused() {
            return error != null && !error.mayPassLater();
        }
    }

    /**
     * Asks for the verdicts. Without an answer each is "failed". If the topic, the group or the
     * only receipt does not exist, each is "unknown": one that is unknown among others has a
     * verdict. If the broker would refuse the request again, each is "refused".
     */
    private Answer ask(String verb, List<Delivery> deliveries, Body body) {
        long visibility =
                deliveries.stream().mapToLong(d -> d.visibility.toMillis()).min().orElseThrow();
        Duration timeout = Duration.ofMillis(Math.max(1000, visibility / 3));
        try {
            Fields answer =
                    transport.call(
                            Transport.Call.once(
                                    path(verb), body, timeout, new Transport.Interrupt()));
            List<Fields> results = answer.objects("results");
            if (results.size() == deliveries.size()) {
                return new Answer(results, null);
            }
            LOG.log(
                    Level.WARNING,
                    "{0}: the broker answered {1} of {2} receipts",
                    verb,
                    results.size(),
                    deliveries.size());
            return Answer.alike("failed", deliveries, null);
        } catch (DwellException e) {
            LOG.log(
                    Level.WARNING,
                    "{0} of {1} deliveries failed: {2}",
                    verb,
                    deliveries.size(),
                    e.getMessage());
            String status = e.isGone() ? "unknown" : e.mayPassLater() ? "failed" : "refused";
            return Answer.alike(status, deliveries, e);
        }
    }

    private void settled(Delivery d, Fields verdict, boolean hadOthers) {
        String status = verdict.text("status");
        String verb = d.decision.verb();
        if (SUCCESS.contains(status)) {
            slots.event(outcome(d, status), d);
        } else if (status.equals("refused") && hadOthers) {
            d.isAlone = true;
            return;
        } else if (status.equals("refused")) {
            slots.event(Event.SETTLE_FAILURES, d);
            LOG.log(
                    Level.WARNING,
                    "{0} of {1} was refused: it may be delivered again",
                    verb,
                    d.id());
        } else if (status.equals("unreachable") || status.equals("failed")) {
            slots.event(Event.SETTLE_FAILURES, d);
            if (System.nanoTime() - d.endsAt < 0) {
                d.notBefore = System.nanoTime() + Transport.backoff(d.tries++, 50);
                return;
            }
            LOG.log(
                    Level.WARNING,
                    "{0} of {1} was not answered before the deadline: it may be delivered again",
                    verb,
                    d.id());
        } else {
            slots.event(Event.STALE, d);
            String reason = verdict.has("reason") ? verdict.text("reason") : status;
            LOG.log(Level.WARNING, "{0} of {1} came too late: {2}", verb, d.id(), reason);
        }
        slots.event(Event.SETTLED, d);
        slots.remove(d);
    }

    private static Event outcome(Delivery d, String status) {
        return switch (d.decision.verb()) {
            case "ack" -> Event.ACKED;
            case "release" -> Event.RELEASED;
            // The nack of the last attempt is answered with "buried".
            default -> status.equals("buried") || d.decision.isBury() ? Event.BURIED : Event.NACKED;
        };
    }

    /** Extends what handlers have until the worker is over. */
    void extend() throws InterruptedException {
        for (List<Delivery> due = awaitDue(); !due.isEmpty(); due = awaitDue()) {
            if (extend(due, due.get(0).visibility) != null) {
                endExtending(due);
            }
        }
    }

    /**
     * The deliveries whose deadlines have to move now, all by the same time. Those whose deadline
     * passed are lost. Empty at the end.
     */
    private List<Delivery> awaitDue() throws InterruptedException {
        synchronized (slots) {
            while (!slots.isOver) {
                long now = System.nanoTime(), next = Slots.never();
                List<Delivery> due = new ArrayList<>();
                for (Delivery d : slots.deliveries()) {
                    if (d.decision != null || d.isLost) {
                        continue;
                    }
                    boolean isExtended =
                            d.isExtended
                                    && d.extendAt - d.extendUntil < 0
                                    && now - d.extendUntil < 0;
                    if (now - d.endsAt >= 0) {
                        slots.lose(d);
                    } else if (isExtended && now - d.extendAt >= 0) {
                        due.add(d);
                    } else {
                        next = Slots.earlier(next, isExtended ? d.extendAt : d.endsAt);
                    }
                }
                if (!due.isEmpty()) {
                    Delivery first = due.get(0);
                    return first.isExtendedAlone
                            ? List.of(first)
                            : due.stream()
                                    .filter(d -> d.visibility.equals(first.visibility))
                                    .filter(d -> !d.isExtendedAlone)
                                    .limit(BATCH)
                                    .toList();
                }
                slots.await(next);
            }
            return List.of();
        }
    }

    /**
     * Moves deadlines in one call. Returns the error if the broker would refuse the same call
     * again, or else null.
     */
    DwellException extend(List<Delivery> deliveries, Duration visibility) {
        long asked = System.nanoTime();
        List<String> receipts = deliveries.stream().map(Delivery::receipt).toList();
        Body body = new Body().with("receipts", receipts).with("visibility_timeout", visibility);
        Answer answer = ask("extend", deliveries, body);
        slots.update(
                () -> {
                    for (int n = 0; n < deliveries.size(); n++) {
                        extended(
                                deliveries.get(n),
                                answer.verdicts().get(n).text("status"),
                                asked,
                                visibility);
                    }
                });
        return answer.isRefused() ? answer.error() : null;
    }

    /**
     * Notes the answer to an extension. A refusal changes nothing here: a handler may have asked
     * for a wrong time, and the worker keeps its own.
     */
    private void extended(Delivery d, String status, long asked, Duration visibility) {
        if (SUCCESS.contains(status)) {
            d.endsAt = asked + visibility.toNanos();
            d.extendAt = asked + visibility.toNanos() / 3;
            d.isExtendedAlone = false;
            slots.event(Event.EXTENDED, d);
        } else if (UNANSWERED.contains(status)) {
            long wait = Math.min(TimeUnit.SECONDS.toNanos(1), d.visibility.toNanos() / 10);
            d.extendAt = System.nanoTime() + wait;
        } else if (!status.equals("refused") && d.decision == null) {
            slots.lose(d);
        }
    }

    /**
     * Extends a delivery no more. If the broker refused several together, one may be wrong: each
     * has another request.
     */
    private void endExtending(List<Delivery> refused) {
        slots.update(
                () -> {
                    for (Delivery d : refused) {
                        if (refused.size() > 1) {
                            d.isExtendedAlone = true;
                            continue;
                        }
                        d.isExtended = false;
                        LOG.log(
                                Level.WARNING,
                                "extend of {0} was refused: it is lost at its deadline",
                                d.id());
                    }
                });
    }
}
