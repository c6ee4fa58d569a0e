// Drives the client that openapi-generator made: java -cp … Smoke http://127.0.0.1:8710

import curlew.ApiClient;
import curlew.ApiException;
import curlew.api.MessagesApi;
import curlew.api.TopicsApi;
import curlew.model.*;
import java.util.List;

public class Smoke {
  public static void main(String[] arguments) throws Exception {
    ApiClient client = new ApiClient();
    client.updateBaseUri(arguments[0]);
    TopicsApi topics = new TopicsApi(client);
    MessagesApi messages = new MessagesApi(client);
    String name = "smoke-" + System.nanoTime();

    TopicBody settings = new TopicBody().queues(1L);
    check(topics.putTopic(TopicsApi.APIPutTopicRequest.newBuilder().topic(name).topicBody(settings).build()).getQueues() == 1);

    BatchEntry entry = new BatchEntry().text("paid").tag("created");
    BatchResult sent =
        messages.sendBatch(
                MessagesApi.APISendBatchRequest.newBuilder()
                    .topic(name).batchRequest(new BatchRequest().messages(List.of(entry))).build())
            .getResults().get(0);
    check(sent.getQueueOffset() == 0);
    check(sent.getStoreTimeMs() > Integer.MAX_VALUE);

    PullAnswer pulled =
        messages.pullMessages(
            MessagesApi.APIPullMessagesRequest.newBuilder().topic(name).queue(0L).offset(0L).build());
    check(pulled.getMessages().get(0).getMessageId().equals(sent.getMessageId()));
    check("created".equals(pulled.getMessages().get(0).getTag()));
    check("paid".equals(pulled.getMessages().get(0).getText()));

    ReceiveAnswer leased =
        messages.receiveMessages(
            MessagesApi.APIReceiveMessagesRequest.newBuilder()
                .topic(name).group("smoke").receiveBody(new ReceiveBody().maxMessages(10L).wait("20s")).build());
    check(leased.getMessages().size() == 1);
    AckBody handles = new AckBody().receiptHandles(List.of(leased.getMessages().get(0).getReceiptHandle()));
    SettleAnswer settled =
        messages.ackMessages(
            MessagesApi.APIAckMessagesRequest.newBuilder().topic(name).group("smoke").ackBody(handles).build());
    check(settled.getSucceeded() == 1 && settled.getFailed() == 0);

    try {
      topics.getTopic(TopicsApi.APIGetTopicRequest.newBuilder().topic(name + "x").build());
      check(false);
    } catch (ApiException refused) {
      Problem problem = client.getObjectMapper().readValue(refused.getResponseBody(), Problem.class);
      check(refused.getCode() == 404 && problem.getCode().getValue().equals("TOPIC_NOT_FOUND"));
    }
  }

  private static void check(boolean is) {
    if (!is) throw new AssertionError();
  }
}
