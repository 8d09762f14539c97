package com.example.dwell;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.function.Supplier;

/** Runs calls on other threads. */
final class Async {
    private static final int THREADS = 32;
    private static final long IDLE_SECONDS = 30;

    private final Executor executor;
    private final ThreadPoolExecutor own;

    /** With null it has its own threads, which begin when they are needed. */
    Async(Executor executor) {
        own = executor == null ? pool() : null;
        this.executor = executor == null ? own : executor;
    }

    private static ThreadPoolExecutor pool() {
        ThreadPoolExecutor pool =
                new ThreadPoolExecutor(
                        THREADS,
                        THREADS,
                        IDLE_SECONDS,
                        TimeUnit.SECONDS,
                        new LinkedBlockingQueue<>(),
                        run -> Transport.daemon("dwell-call", run));
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    /**
     * Runs a call. A future that is cancelled interrupts it, or takes it back if it has not begun.
     */
    <T> CompletableFuture<T> call(Supplier<T> call) {
        CompletableFuture<T> future = new CompletableFuture<>();
        FutureTask<Void> run =
                new FutureTask<>(
                        () -> {
                            try {
                                future.complete(call.get());
                            } catch (Throwable e) {
                                future.completeExceptionally(e);
                            }
                        },
                        null);
        future.whenComplete(
                (value, error) -> {
                    if (future.isCancelled()) {
                        run.cancel(true);
                    }
                });
        executor.execute(run);
        return future;
    }

    /** Does the same with each message, with many at a time. */
    <T> List<Outcome<T>> each(Collection<MessageRef> messages, Function<MessageRef, T> call) {
        List<CompletableFuture<Outcome<T>>> running = new ArrayList<>();
        for (MessageRef message : messages) {
            running.add(call(() -> outcome(message, call)));
        }
        try {
            List<Outcome<T>> outcomes = new ArrayList<>();
            for (CompletableFuture<Outcome<T>> one : running) {
                outcomes.add(one.get());
            }
            return outcomes;
        } catch (InterruptedException e) {
            running.forEach(one -> one.cancel(true));
            throw Transport.interrupted(e);
        } catch (ExecutionException e) {
            running.forEach(one -> one.cancel(true));
            throw e.getCause() instanceof RuntimeException known
                    ? known
                    : new CompletionException(e.getCause());
        }
    }

    private static <T> Outcome<T> outcome(MessageRef message, Function<MessageRef, T> call) {
        try {
            return new Outcome<>(message, call.apply(message), null);
        } catch (DwellException e) {
            return new Outcome<>(message, null, e);
        }
    }

    void close() {
        if (own != null) {
            own.shutdown();
        }
    }
}
