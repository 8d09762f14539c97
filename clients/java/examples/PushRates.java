import com.example.dwell.Client;
import com.example.dwell.NewMessage;
import com.example.dwell.Producer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

/** 32 callers push for some seconds: one by one, with a Producer, and in batches of 100. */
public class PushRates {
    private static final int CALLERS = 32;

    private interface Push {
        int messages();
    }

    public static void main(String[] args) throws InterruptedException {
        Duration each = Duration.ofSeconds(args.length > 0 ? Long.parseLong(args[0]) : 5);
        try (Client dwell = new Client();
                Producer producer = Producer.builder(dwell).topic("rates").build()) {
            Push single =
                    () -> {
                        dwell.push("rates", message());
                        return 1;
                    };
            Push gathered =
                    () -> {
                        producer.push(message()).join();
                        return 1;
                    };
            Push batch = () -> dwell.pushMany("rates", messages(100)).size();
            rate(Duration.ofSeconds(2), single);
            rate(Duration.ofSeconds(2), gathered);
            double ones = rate(each, single);
            System.out.printf("single pushes: 1.0 (%.0f messages a second)%n", ones);
            System.out.printf("Producer: %.1f%n", rate(each, gathered) / ones);
            System.out.printf("batches of 100: %.1f%n", rate(each, batch) / ones);
        }
    }

    /** Messages a second. */
    private static double rate(Duration time, Push push) throws InterruptedException {
        AtomicLong pushed = new AtomicLong();
        CountDownLatch ended = new CountDownLatch(CALLERS);
        long began = System.nanoTime();
        for (int n = 0; n < CALLERS; n++) {
            new Thread(
                            () -> {
                                while (System.nanoTime() - began < time.toNanos()) {
                                    pushed.addAndGet(push.messages());
                                }
                                ended.countDown();
                            })
                    .start();
        }
        ended.await();
        return pushed.get() * 1e9 / (System.nanoTime() - began);
    }

    private static NewMessage message() {
        return NewMessage.text("close order 4713").delay(Duration.ofHours(1)).build();
    }

    private static List<NewMessage> messages(int count) {
        List<NewMessage> messages = new ArrayList<>();
        for (int n = 0; n < count; n++) {
            messages.add(message());
        }
        return messages;
    }
}
