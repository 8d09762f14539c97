import com.example.dwell.Client;
import com.example.dwell.MessageState;
import com.example.dwell.NewCronJob;
import com.example.dwell.NewMessage;
import com.example.dwell.TestBroker;

import java.time.Duration;

/**
 * A month in milliseconds: a reminder and a daily report, on a broker whose time the test moves.
 */
public class ClockTest {
    public static void main(String[] args) {
        try (TestBroker broker = new TestBroker()) {
            Client dwell = broker.client();
            NewMessage renew =
                    NewMessage.text("renew").id("renew").delay(Duration.ofDays(30)).build();
            dwell.push("reminders", renew);
            dwell.putCron("reports", "daily", NewCronJob.cron("@daily").text("report").build());

            broker.advance(Duration.ofDays(29));
            expect(dwell.get("reminders", "renew").state() == MessageState.SCHEDULED);

            TestBroker.Moved moved = broker.advance(Duration.ofDays(1));
            expect(dwell.get("reminders", "renew").state() == MessageState.READY);
            expect(moved.fired().get(0).name().equals("daily"));
            System.out.println("a month has passed");
        }
    }

    private static void expect(boolean isTrue) {
        if (!isTrue) {
            throw new AssertionError("not as expected");
        }
    }
}
