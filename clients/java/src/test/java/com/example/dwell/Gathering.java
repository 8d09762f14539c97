package com.example.dwell;

import static com.example.dwell.Calls.given;
import static com.example.dwell.Calls.text;
import static com.example.dwell.Lab.check;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;

/** Plays the steps of a vector with a producer. */
final class Gathering {
    private final Client client;
    private final BiConsumer<Map<String, Object>, Throwable> thrown;
    private final Map<String, Push> pushes = new LinkedHashMap<>();

    Gathering(Client client, BiConsumer<Map<String, Object>, Throwable> thrown) {
        this.client = client;
        this.thrown = thrown;
    }

    void play(Map<String, Object> vector) {
        Map<String, Object> options = Conformance.object(vector, "producer");
        Producer.Builder builder = Producer.builder(client);
        given(options, "linger", text -> builder.linger(Calls.duration(text)));
        given(options, "batch", text -> builder.batch(Integer.parseInt(text)));
        given(options, "buffer", text -> builder.buffer(Integer.parseInt(text)));
        given(options, "buffer_bytes", text -> builder.bufferBytes(Long.parseLong(text)));
        given(options, "at_once", text -> builder.atOnce(Integer.parseInt(text)));
        try (Producer producer = builder.build()) {
            for (Map<String, Object> step : Conformance.objects(vector, "steps")) {
                play(producer, step);
            }
        }
    }

    private void play(Producer producer, Map<String, Object> step) {
        if (step.containsKey("push")) {
            Push push = new Push(producer, Conformance.object(step, "push"));
            pushes.put(text(step, "as"), push);
            push.begin();
            Lab.mark("pushed", 1);
        } else if (step.containsKey("cancel")) {
            pushes.get(text(step, "cancel")).cancel();
            Lab.mark("cancelled", 1);
        } else if (step.containsKey("wait")) {
            Conformance.await(Conformance.object(step, "wait"));
        } else if (step.containsKey("flush")) {
            producer.flush();
        } else if (step.containsKey("close")) {
            producer.close();
        } else {
            answer(step);
        }
    }

    private void answer(Map<String, Object> step) {
        Map<String, Object> raises = Conformance.object(step, "raises");
        PushResult result;
        try {
            result = pushes.get(text(step, "answer")).result();
        } catch (Exception e) {
            thrown.accept(raises, e instanceof CompletionException ? e.getCause() : e);
            return;
        }
        check(raises.isEmpty(), "nothing was thrown");
        Plain.differs(step.get("returns"), Plain.of(result));
    }

    /** A push on a thread of its own, since it may wait for room. */
    private static final class Push {
        private final Thread thread;
        private final CompletableFuture<CompletableFuture<PushResult>> begun =
                new CompletableFuture<>();

        Push(Producer producer, Map<String, Object> args) {
            thread =
                    new Thread(
                            () -> {
                                try {
                                    NewMessage message = Calls.message(args);
                                    begun.complete(producer.push(text(args, "topic"), message));
                                } catch (RuntimeException e) {
                                    begun.completeExceptionally(e);
                                }
                            });
        }

        /** Returns once the message is gathered, or waits for room. */
        void begin() {
            thread.start();
            while (!begun.isDone() && thread.getState() != Thread.State.WAITING) {
                Thread.onSpinWait();
            }
        }

        void cancel() {
            if (begun.isDone()) {
                begun.join().cancel(true);
            } else {
                thread.interrupt();
            }
        }

        PushResult result() throws Exception {
            long seconds = Lab.PATIENCE.toSeconds();
            return begun.orTimeout(seconds, TimeUnit.SECONDS)
                    .join()
                    .orTimeout(seconds, TimeUnit.SECONDS)
                    .join();
        }
    }
}
