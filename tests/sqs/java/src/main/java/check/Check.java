package check;

import io.awspring.cloud.sqs.listener.SqsContainerOptions;
import io.awspring.cloud.sqs.listener.SqsMessageListenerContainer;
import io.awspring.cloud.sqs.operations.SqsTemplate;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.batchmanager.SqsAsyncBatchManager;
import software.amazon.awssdk.services.sqs.model.MessageAttributeValue;
import software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName;
import software.amazon.awssdk.services.sqs.model.QueueDoesNotExistException;
import software.amazon.awssdk.services.sqs.model.ReceiveMessageResponse;

/** The SDK of Java, its batch manager, and Spring Cloud AWS against a broker. The endpoint comes from the environment. */
public final class Check {
  private static String fresh(String name) {
    return name + "-" + UUID.randomUUID().toString().substring(0, 8);
  }

  private static void check(boolean holds, String what, Object found) {
    if (!holds) {
      throw new IllegalStateException("not true: " + what + ": " + found);
    }
  }

  /** The SDK compares the MD5 of bodies and attributes in both directions. */
  private static void attributes(SqsClient sqs) {
    String url = sqs.createQueue(q -> q.queueName(fresh("java"))).queueUrl();
    Map<String, MessageAttributeValue> sent = Map.of(
        "Text", MessageAttributeValue.builder().dataType("String").stringValue("grüße").build(),
        "Count", MessageAttributeValue.builder().dataType("Number.int").stringValue("42").build(),
        "Bytes", MessageAttributeValue.builder().dataType("Binary").binaryValue(SdkBytes.fromByteArray(new byte[] {0, 1, -1})).build());
    sqs.sendMessage(m -> m.queueUrl(url).messageBody("body 🚀").messageAttributes(sent));
    var received = sqs.receiveMessage(m -> m.queueUrl(url).waitTimeSeconds(5).messageAttributeNames("All")
        .messageSystemAttributeNames(MessageSystemAttributeName.ALL)).messages();
    check(received.size() == 1 && received.get(0).messageAttributes().equals(sent), "attributes are kept", received);
    sqs.deleteMessage(m -> m.queueUrl(url).receiptHandle(received.get(0).receiptHandle()));
    check(sqs.receiveMessage(m -> m.queueUrl(url)).messages().isEmpty(), "it is deleted", url);
    try {
      sqs.getQueueUrl(q -> q.queueName(fresh("nobody")));
      check(false, "a missing queue is an error", url);
    } catch (QueueDoesNotExistException expected) {
      System.out.println("java: attributes and typed errors ... ok");
    }
  }

  private static void batchManager(SqsAsyncClient sqs, int messages) throws Exception {
    String url = sqs.createQueue(q -> q.queueName(fresh("batches"))).get().queueUrl();
    Set<String> seen = ConcurrentHashMap.newKeySet();
    try (SqsAsyncBatchManager batches = SqsAsyncBatchManager.builder().client(sqs)
        .scheduledExecutor(java.util.concurrent.Executors.newScheduledThreadPool(2)).build()) {
      List<CompletableFuture<?>> sent = new ArrayList<>();
      for (int n = 0; n < messages; n++) {
        String body = "m" + n;
        sent.add(batches.sendMessage(m -> m.queueUrl(url).messageBody(body)));
        // The SDK fails calls that wait 10 s for one of its 50 connections.
        if (sent.size() == 200 || n == messages - 1) {
          CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get();
          sent.clear();
        }
      }
      long until = System.nanoTime() + Duration.ofMinutes(3).toNanos();
      while (seen.size() < messages) {
        check(System.nanoTime() < until, "all arrive", seen.size());
        ReceiveMessageResponse answer = batches.receiveMessage(m -> m.queueUrl(url)).get();
        List<CompletableFuture<?>> deleted = new ArrayList<>();
        answer.messages().forEach(message -> {
          seen.add(message.body());
          deleted.add(batches.deleteMessage(m -> m.queueUrl(url).receiptHandle(message.receiptHandle())));
        });
        CompletableFuture.allOf(deleted.toArray(new CompletableFuture<?>[0])).get();
      }
    }
    System.out.println("java: " + messages + " messages by the batch manager ... ok");
  }

  private static void spring(SqsAsyncClient sqs) throws Exception {
    String name = fresh("spring");
    Set<String> seen = ConcurrentHashMap.newKeySet();
    // The queue is created by the template, since it does not exist.
    SqsTemplate template = SqsTemplate.newTemplate(sqs);
    for (int n = 0; n < 20; n++) {
      template.send(name, "m" + n);
    }
    var container = SqsMessageListenerContainer.<String>builder().sqsAsyncClient(sqs).queueNames(name)
        .configure(options -> options.pollTimeout(Duration.ofSeconds(1)))
        .messageListener(message -> seen.add(message.getPayload())).build();
    container.start();
    long until = System.nanoTime() + Duration.ofMinutes(1).toNanos();
    while (seen.size() < 20) {
      check(System.nanoTime() < until, "all arrive", seen);
      Thread.sleep(20);
    }
    container.stop();
    System.out.println("java: a listener of Spring Cloud AWS ... ok");
  }

  public static void main(String[] args) throws Exception {
    try (SqsClient sqs = SqsClient.create(); SqsAsyncClient async = SqsAsyncClient.create()) {
      attributes(sqs);
      batchManager(async, Integer.parseInt(System.getenv().getOrDefault("MESSAGES", "2000")));
      spring(async);
    }
    System.exit(0);
  }
}
