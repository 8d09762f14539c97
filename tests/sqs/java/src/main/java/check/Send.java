package check;

import java.util.ArrayList;
import java.util.List;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.SendMessageBatchRequestEntry;

/** Sends the numbers from FROM to TO - 1 to QUEUE in batches. The endpoint comes from the environment. */
public final class Send {
  public static void main(String[] arguments) {
    int to = Integer.parseInt(arguments[2]);
    try (SqsClient sqs = SqsClient.create()) {
      String url = sqs.getQueueUrl(q -> q.queueName(arguments[0])).queueUrl();
      for (int from = Integer.parseInt(arguments[1]); from < to; from += 10) {
        List<SendMessageBatchRequestEntry> entries = new ArrayList<>();
        for (int n = from; n < Math.min(to, from + 10); n++) {
          String body = Integer.toString(n);
          entries.add(SendMessageBatchRequestEntry.builder().id(body).messageBody(body).build());
        }
        var sent = sqs.sendMessageBatch(b -> b.queueUrl(url).entries(entries));
        if (sent.hasFailed() && !sent.failed().isEmpty()) {
          throw new IllegalStateException("not sent: " + sent.failed());
        }
      }
    }
  }
}
