package com.example.dwell;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Talks to clients/conformance/lab.py, which starts these tests. */
final class Lab {
    private static final HttpClient HTTP =
            HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final ExecutorService THREADS =
            Executors.newCachedThreadPool(run -> Transport.daemon("lab", run));

    private Lab() {}

    static Object ask(String path, Map<String, ?> asked) {
        if (System.getenv("LAB") == null) {
            throw new IllegalStateException("LAB is not set: run clients/run");
        }
        HttpRequest request =
                HttpRequest.newBuilder(URI.create(System.getenv("LAB") + path))
                        .POST(HttpRequest.BodyPublishers.ofString(Json.write(asked)))
                        .build();
        // On another thread, since a worker may interrupt the handler that asks.
        HttpResponse<String> response =
                CompletableFuture.supplyAsync(() -> send(request), THREADS).join();
        check(response.statusCode() == 200, path + ": " + response.body());
        return Json.read(response.body());
    }

    private static HttpResponse<String> send(HttpRequest request) {
        return HTTP.sendAsync(request, HttpResponse.BodyHandlers.ofString()).join();
    }

    static Map<String, Object> object(String path, Map<String, ?> asked) {
        return Fields.of(ask(path, asked)).map();
    }

    static void mark(String name, int by) {
        ask("/mark", Map.of("name", name, "by", by));
    }

    static void check(boolean condition, Object otherwise) {
        if (!condition) {
            throw new AssertionError(otherwise);
        }
    }

    static void same(Object expected, Object actual) {
        same("", expected, actual);
    }

    static void same(String what, Object expected, Object actual) {
        check(
                java.util.Objects.equals(expected, actual),
                what + " " + actual + ", expected " + expected);
    }

    /** A story with real brokers. */
    static final class Story implements AutoCloseable {
        final String server;
        final Client client;
        private Map<String, Object> ended;

        Story(String name, int messages) {
            Map<String, Object> begun =
                    object("/story", Map.of("name", name, "messages", messages));
            server = (String) begun.get("server");
            Client.Builder builder =
                    client(server).tokenFile(Path.of((String) begun.get("token_file")));
            if (begun.get("ca_file") instanceof String file) {
                builder.caFile(Path.of(file));
            }
            client = builder.build();
        }

        /** A broker is away for some seconds while it is restarted. */
        static Client.Builder client(String server) {
            return Client.builder()
                    .server(server)
                    .timeout(Duration.ofSeconds(10))
                    .retryFor(Duration.ofMinutes(1));
        }

        /** Ends the story. Returns how many faults there were. */
        long end() {
            close();
            same(List.of(), ended.get("failures"));
            return (Long) ended.get("faults");
        }

        @Override
        public void close() {
            if (ended == null) {
                ended = object("/story/end", Map.of());
                client.close();
            }
        }
    }

    /** A worker that runs until it is closed. */
    static final class Running implements AutoCloseable {
        final Worker worker;
        private final Thread thread;
        private volatile Throwable thrown;

        Running(Worker worker, Handler handler) {
            this.worker = worker;
            thread =
                    new Thread(
                            () -> {
                                try {
                                    worker.run(handler);
                                } catch (Throwable e) {
                                    thrown = e;
                                }
                            });
            thread.start();
        }

        /** Waits for the end of the worker. Returns what it threw, or null. */
        Throwable await() {
            try {
                thread.join(PATIENCE.toMillis());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            check(!thread.isAlive(), "the worker does not end");
            return thrown;
        }

        @Override
        public void close() {
            worker.stop();
            Throwable failure = await();
            check(failure == null, failure);
        }
    }
}
