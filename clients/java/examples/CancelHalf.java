import com.example.dwell.Client;
import com.example.dwell.Control;
import com.example.dwell.MessageRef;
import com.example.dwell.NewMessage;
import com.example.dwell.Outcome;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Pushes 100 messages, and cancels every second one before it is due. */
public class CancelHalf {
    public static void main(String[] args) {
        try (Client dwell = new Client()) {
            List<NewMessage> trials = new ArrayList<>();
            List<MessageRef> renewed = new ArrayList<>();
            for (int n = 0; n < 100; n++) {
                String id = "end-of-trial-" + n;
                trials.add(NewMessage.json(n).id(id).delay(Duration.ofDays(14)).build());
                if (n % 2 == 0) {
                    renewed.add(new MessageRef(id, null));
                }
            }
            dwell.pushMany("trials", trials);
            List<Outcome<Control>> outcomes = dwell.cancelMany("trials", renewed);
            long cancelled = outcomes.stream().filter(Outcome::isOk).count();
            long left = dwell.list("trials").stream().count();
            System.out.println(cancelled + " messages are cancelled, " + left + " are left");
        }
    }
}
