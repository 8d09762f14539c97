package com.example.dwell;

import static com.example.dwell.Lab.check;
import static com.example.dwell.Lab.same;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;

/** Ids, which decisions travel together, JSON, answers of any form, and input that is refused. */
final class Units {
    private Units() {}

    static void idsAreUniqueAndCountUpInRuns() {
        List<String> made =
                java.util.stream.IntStream.range(0, 40_000)
                        .parallel()
                        .mapToObj(n -> Ids.next())
                        .toList();
        same(made.size(), new java.util.HashSet<>(made).size());
        check(made.stream().allMatch(id -> id.matches("[0-7][0-9A-HJKMNP-TV-Z]{25}")), made.get(0));
        long runs = made.stream().map(id -> id.substring(0, 23)).distinct().count();
        check(runs >= 40_000 / Ids.RUN_IDS && runs <= 4_000, runs + " runs");
    }

    static void aRunOfIdsEndsWithItsTime() {
        Ids ids = new Ids();
        long begun = 1_764_000_000_000L;
        String first = ids.next(begun);
        String second = ids.next(begun + Ids.RUN_MS - 1);
        same(first.substring(0, 23), second.substring(0, 23));
        check(second.compareTo(first) > 0, second);
        for (long now : new long[] {begun + Ids.RUN_MS, begun - 1_000}) {
            String other = ids.next(now);
            check(!other.startsWith(first.substring(0, 23)), other);
        }
    }

    /** Deliveries of these ids, whose handlers run. */
    private static Map<String, Delivery> handled(Slots slots, Settler settler, List<String> ids) {
        Map<String, Delivery> handled = new LinkedHashMap<>();
        for (String id : ids) {
            Map<String, Object> fields =
                    new LinkedHashMap<>(Map.of("id", id, "receipt", id, "attempt", 1L));
            fields.putAll(
                    Map.of("partition", 0L, "lateness_ms", 0L, "payload", "", "meta", Map.of()));
            fields.put("due_at", "2026-01-02T03:04:05.678Z");
            fields.put("deadline", "2026-01-02T03:04:35.678Z");
            Delivery d = new Delivery(new Fields(fields), settler, Duration.ofSeconds(30));
            slots.add(d);
            handled.put(id, d);
        }
        return handled;
    }

    /** The verb and the receipts of the next request. */
    private static List<String> sent(Settler settler) {
        List<Delivery> batch = settler.gathered(System.nanoTime());
        List<String> sent = new ArrayList<>();
        batch.stream().map(d -> d.decision.verb()).distinct().forEach(sent::add);
        batch.forEach(d -> sent.add(d.receipt()));
        return sent;
    }

    static void aDecisionWaitsForNoOther() {
        Slots slots = new Slots((event, delivery) -> {});
        Settler settler = new Settler(null, "orders", "default", slots);
        Map<String, Delivery> handled = handled(slots, settler, List.of("a", "b"));
        same(List.of(), sent(settler));
        slots.decide(handled.get("a"), Decision.ack());
        same(List.of("ack", "a"), sent(settler));
    }

    static void aRequestHasOneVerbAndWhatWasDecidedFirst() {
        Slots slots = new Slots((event, delivery) -> {});
        Settler settler = new Settler(null, "orders", "default", slots);
        Map<String, Delivery> handled = handled(slots, settler, List.of("a", "b", "c", "d"));
        slots.decide(handled.get("c"), Decision.release());
        slots.decide(handled.get("b"), Decision.ack());
        slots.decide(handled.get("a"), Decision.release());
        same(List.of("release", "c", "a"), sent(settler));
    }

    static void aRequestHasAtMostAHundredDecisions() {
        Slots slots = new Slots((event, delivery) -> {});
        Settler settler = new Settler(null, "orders", "default", slots);
        List<String> ids = IntStream.range(0, 150).mapToObj(n -> "m" + n).toList();
        Map<String, Delivery> handled = handled(slots, settler, ids);
        handled.values().forEach(d -> slots.decide(d, Decision.ack()));
        List<String> expected = new ArrayList<>(List.of("ack"));
        expected.addAll(ids.subList(0, 100));
        same(expected, sent(settler));
    }

    static void jsonIsReadAsItWasWritten() {
        Map<String, Object> value =
                Map.of(
                        "a\"\\\u0001",
                        Arrays.asList(1L, -2.5, 1e300, true, null, "k\u00e4se \ud83e\uddc0"),
                        "b",
                        Map.of(),
                        "c",
                        List.of());
        same(value, Json.read(Json.write(value)));
        same(
                List.of(1L, new java.math.BigInteger("123456789012345678901"), 0.5),
                Json.read(" [ 1 , 123456789012345678901 , 5e-1 ] "));
        same("/\"\\\b\f\n\r\t\u00e4", Json.read("\"\\/\\\"\\\\\\b\\f\\n\\r\\t\\u00E4\""));
        same("[1,[2,\"ACKED\"]]", Json.write(new Object[] {1, List.of(2, Event.ACKED)}));
    }

    static void whatIsNotJsonIsRefused() {
        for (String text :
                List.of(
                        "",
                        "{",
                        "[1,]",
                        "{\"a\"}",
                        "{\"a\":1,}",
                        "{1:2}",
                        "[1 2]",
                        "\"",
                        "\"\\x\"",
                        "\"\\u12\"",
                        "\"\\u+123\"",
                        "\"\n\"",
                        "01",
                        "1.",
                        "-",
                        "nul",
                        "true false",
                        "[".repeat(100_000))) {
            refused(() -> Json.read(text));
        }
        refused(() -> Json.write(Double.NaN));
        refused(() -> Json.write(new Object()));
    }

    static void addressesAndHeadersAreChecked() {
        for (String server :
                List.of(
                        "",
                        "127.0.0.1:7373",
                        "ftp://a",
                        "http://",
                        "http://a/path",
                        "http://user@a",
                        "http://a:b",
                        "http://a:70000",
                        "http://a?b",
                        "unix:relative")) {
            refused(() -> new Client(server));
        }
        for (String server :
                List.of(
                        "http://my_broker:7373",
                        "https://[::1]",
                        "http://localhost:7373/",
                        "unix:/run/a b.sock")) {
            new Client(server).close();
        }
        try (Client client =
                Client.builder()
                        .server("http://127.0.0.1:1")
                        .trace(() -> Map.of("traceparent", "00\r\nX-Evil: 1"))
                        .build()) {
            refused(() -> client.push("orders", NewMessage.text("x").build()));
            refused(
                    () ->
                            client.reschedule(
                                    "orders", "a", Reschedule.in(Duration.ZERO).etag("\n")));
        }
    }

    private static void refused(Runnable call) {
        try {
            call.run();
        } catch (IllegalArgumentException e) {
            return;
        }
        throw new AssertionError("nothing was refused");
    }

    static void answersOfEveryFormAreRead() throws IOException {
        for (String answer :
                List.of(
                        "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"id\":\"a\"}",
                        "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"id\r\n6;x=y\r\n\":\"a\"}\r\n0\r\n\r\n",
                        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"id\":\"a\"}",
                        "HTTP/1.0 200 OK\n\n{\"id\":\"a\"}")) {
            same("a", get(answer));
        }
    }

    static void anAnswerThatIsNoneIsNotTaken() throws IOException {
        for (String answer :
                List.of(
                        "",
                        "SSH-2.0\r\n",
                        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"id\"",
                        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                        "HTTP/1.1 200 OK\r\nContent-Length: 4294967295\r\n\r\n",
                        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                        "HTTP/1.1 200 OK\r\nX: " + "x".repeat(100_000))) {
            try {
                throw new AssertionError("taken: " + get(answer));
            } catch (DwellException e) {
                check(e.status() == 0 && e instanceof UnavailableException, e);
            }
        }
    }

    /** The id in the answer of a server that writes this and closes the connection. */
    private static String get(String answer) throws IOException {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                Client client =
                        Client.builder()
                                .server("http://127.0.0.1:" + listener.getLocalPort())
                                .retryFor(Duration.ZERO)
                                .build()) {
            Thread server =
                    new Thread(
                            () -> {
                                try (Socket socket = listener.accept()) {
                                    socket.getInputStream().read(new byte[10_000]);
                                    socket.getOutputStream()
                                            .write(answer.getBytes(StandardCharsets.UTF_8));
                                } catch (IOException e) {
                                    // The client closed the connection first.
                                }
                            });
            server.start();
            return client.get("orders", "a").id();
        }
    }

    static void aLongStackIsThatOfTheFirstCause() {
        Throwable thrown = new IllegalStateException("first");
        for (int n = 0; n < 200; n++) {
            thrown = new IllegalArgumentException("käse", thrown);
        }
        String text = Stacks.text(thrown, 4096);
        check(text.startsWith("java.lang.IllegalStateException: first"), text);
        check(text.getBytes(StandardCharsets.UTF_8).length <= 4096, text.length());
        String whole = Stacks.text(new IllegalStateException("x", new IOException("y")), 1 << 20);
        check(whole.contains("Caused by: java.io.IOException: y"), whole);
        same("ää", Decision.cut("ääää", 5));
        same("a", Decision.cut("a🧀", 4));
    }

    static void argumentsThatNoBrokerAcceptsAreRefused() {
        try (Client client = new Client("http://127.0.0.1:1")) {
            refused(() -> Worker.builder(client, ""));
            refused(() -> Worker.builder(client, "orders").concurrency(0));
            refused(() -> Producer.builder(client).batch(1001));
            refused(() -> client.get("orders", ".."));
            refused(() -> NewMessage.text("x").priority(10));
            refused(() -> NewMessage.text("x").conflict(null).meta(Map.of()).key(""));
            refused(() -> new MessageRef("", null));
            refused(() -> BulkChange.postpone(Instant.EPOCH, Instant.now(), null));
            refused(
                    () ->
                            client.list("orders", MessageQuery.ALL.state(MessageState.UNKNOWN))
                                    .iterator()
                                    .hasNext());
            refused(() -> DeadLetterSelection.matching(DeadLetterQuery.ALL));
            GroupSettings unknown = GroupSettings.NONE.fair(Fairness.UNKNOWN);
            refused(() -> client.createGroup("orders", "audit", unknown));
            refused(() -> client.pauseKey("orders", "audit", "", Duration.ofMinutes(10)));
            refused(() -> client.pauseKey("orders", "audit", "a", Duration.ofMinutes(-10)));
            refused(() -> client.resumeKey("orders", "audit", ""));
            refused(() -> GroupSettings.NONE.keyMaxInFlight(-1));
            refused(() -> GroupSettings.NONE.keyRate(-0.5));
            refused(() -> GroupSettings.NONE.keyRate(10).keyBurst(0));
            refused(() -> GroupSettings.NONE.keyRate(10).keyBurst(-1));
            refused(() -> GroupSettings.NONE.weights(Map.of("gold-*", 3, "customer-7", 0)));
            refused(() -> KeyLimit.NONE.maxInFlight(-1));
            refused(() -> KeyLimit.NONE.rate(-0.5));
            refused(() -> KeyLimit.NONE.rate(10).burst(0));
        }
    }

    static void whatTakesTurnsInAGroupMayBeAbsentOrNew() {
        Map<String, Object> answer = Map.of("group", "audit", "state", "active");
        same(null, Group.of(new Fields(answer)).fair());
        Map.of("none", Fairness.NONE, "key", Fairness.KEY, "tenant", Fairness.UNKNOWN)
                .forEach(
                        (word, fair) -> {
                            Map<String, Object> fields = new LinkedHashMap<>(answer);
                            fields.put("fair", word);
                            same(fair, Group.of(new Fields(fields)).fair());
                        });
    }

    static void theLimitsOfAKeyMayBeAbsent() {
        Map<String, Object> answer =
                new LinkedHashMap<>(Map.of("group", "audit", "state", "active", "fair", "key"));
        Group group = Group.of(new Fields(answer));
        same(null, group.keyMaxInFlight());
        same(null, group.keyRate());
        same(null, group.keyBurst());
        answer.put("key_max_in_flight", 5L);
        same(5, Group.of(new Fields(answer)).keyMaxInFlight());
        answer.put("key_rate", 0.5);
        same(0.5, Group.of(new Fields(answer)).keyRate());
        same(null, Group.of(new Fields(answer)).keyBurst());
        answer.put("key_burst", 20L);
        same(20, Group.of(new Fields(answer)).keyBurst());
        same(Map.of(), group.weights());
        same(Map.of(), group.keyLimits());
        answer.put("weights", Map.of("gold_plan-*", 3L));
        answer.put(
                "key_limits",
                Map.of(
                        "gold_plan-*",
                        Map.of("max_in_flight", 0L),
                        "a",
                        Map.of("rate", 0.5, "burst", 20L)));
        Group limited = Group.of(new Fields(answer));
        same(Map.of("gold_plan-*", 3), limited.weights());
        Map<String, KeyLimit> limits =
                Map.of(
                        "gold_plan-*",
                        KeyLimit.NONE.maxInFlight(0),
                        "a",
                        KeyLimit.NONE.rate(0.5).burst(20));
        same(limits, limited.keyLimits());
    }

    static void emptyMapsOfAGroupAreSent() {
        same("{}", json(GroupSettings.NONE));
        GroupSettings removed = GroupSettings.NONE.weights(Map.of()).keyLimits(Map.of());
        same("{\"weights\":{},\"key_limits\":{}}", json(removed));
        KeyLimit limit = KeyLimit.NONE.maxInFlight(0).rate(0.5).burst(20);
        same(
                "{\"weights\":{\"gold_plan-*\":3},\"key_limits\":{\"gold_plan-*\":"
                        + "{\"max_in_flight\":0,\"rate\":0.5,\"burst\":20}}}",
                json(
                        GroupSettings.NONE
                                .weights(Map.of("gold_plan-*", 3))
                                .keyLimits(Map.of("gold_plan-*", limit))));
    }

    private static String json(GroupSettings settings) {
        return new String(settings.body().json(), StandardCharsets.UTF_8);
    }
}
