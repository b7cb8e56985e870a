package petrel.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages chosen by SQL92 expressions over their properties. */
final class SqlCases {
    private static final int SUBSCRIPTION_PARSE_FAILED = 23;

    private SqlCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("sql", SqlCases::push);
        cases.put("sql-null", SqlCases::absent);
        cases.put("sql-pull", SqlCases::pull);
        cases.put("sql-wrong", SqlCases::wrong);
        cases.put("sql-update", SqlCases::update);
    }

    /** Numbers, texts, lists and the tag, in one expression; what comes later wakes the consumer as well. */
    private static void push(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        start(fixture, inbox,
            "(TAGS IN ('TagA', 'TagB') AND weight BETWEEN 3 AND 6 AND region <> 'us') OR note CONTAINS 'it''s'");
        List<String> wanted = new ArrayList<>();
        for (String round : List.of("early", "late")) {
            for (int weight = 0; weight < 10; weight++) {
                for (String region : List.of("eu", "us")) {
                    for (String tag : List.of("TagA", "TagC")) {
                        String body = String.join("-", round, tag, region, String.valueOf(weight));
                        Message message = fixture.message(body);
                        message.setTags(tag);
                        message.putUserProperty("weight", String.valueOf(weight));
                        message.putUserProperty("region", region);
                        fixture.producer().send(message);
                        if (tag.equals("TagA") && region.equals("eu") && weight >= 3 && weight <= 6) {
                            wanted.add(body);
                        }
                    }
                }
            }
            Message noted = fixture.message("noted-" + round);
            noted.putUserProperty("note", "now it's noted");
            fixture.producer().send(noted);
            wanted.add("noted-" + round);
            inbox.expectExactly(wanted);
        }
    }

    /** An absent property is neither equal nor unequal; one that is no number fails the comparison, and with it the expression. */
    private static void absent(Fixture fixture) throws Exception {
        fixture.createTopic();
        DefaultMQPullConsumer consumer = fixture.pullConsumer();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(fixture.topic).iterator().next();
        long first = consumer.maxOffset(queue);
        for (String weight : new String[] {"5", null, "much", "7"}) {
            Message message = fixture.message("weight-" + weight);
            if (weight != null) {
                message.putUserProperty("weight", weight);
            }
            fixture.producer().send(message, queue);
        }
        Check.eventually("the max offset of the queue", () -> consumer.maxOffset(queue) == first + 4);
        awaitBrokerVersion(consumer, queue);
        Map<String, List<String>> expected = Map.of(
            "weight = 5", List.of("weight-5"),
            "weight <> 5", List.of("weight-7"),
            "5 <> weight", List.of("weight-null", "weight-7"),
            "NOT (weight = 5)", List.of("weight-7"),
            "weight IS NULL", List.of("weight-null"),
            "weight IS NOT NULL", List.of("weight-5", "weight-much", "weight-7"),
            "weight > 5 OR TRUE", List.of("weight-5", "weight-null", "weight-7"),
            "TRUE OR weight > 5", List.of("weight-5", "weight-null", "weight-much", "weight-7"),
            "weight NOT CONTAINS 'u'", List.of("weight-5", "weight-7"),
            "NOT (weight CONTAINS 'u')", List.of("weight-5", "weight-null", "weight-7"));
        for (Map.Entry<String, List<String>> one : expected.entrySet()) {
            PullResult result = consumer.pull(queue, MessageSelector.bySql(one.getKey()), first, 32);
            Check.equal(PullStatus.FOUND, result.getPullStatus(), "status of " + one.getKey());
            Check.equal(one.getValue(), result.getMsgFoundList().stream().map(Inbox::body).toList(), one.getKey());
            Check.equal(first + 4, result.getNextBeginOffset(), "next offset of " + one.getKey());
        }
        PullResult nothing = consumer.pull(queue, MessageSelector.bySql("weight > 100"), first, 32);
        Check.equal(PullStatus.NO_MATCHED_MSG, nothing.getPullStatus(), "status without a match");
        Check.equal(first + 4, nothing.getNextBeginOffset(), "next offset without a match");
    }

    /** Consumers that ask themselves, with the expression in each request. */
    private static void pull(Fixture fixture) throws Exception {
        fixture.createTopic();
        DefaultLitePullConsumer consumer = fixture.litePullConsumer();
        consumer.subscribe(fixture.topic, MessageSelector.bySql("number >= 10 AND number < 25"));
        consumer.start();
        List<String> wanted = new ArrayList<>();
        for (int number = 0; number < 40; number++) {
            sendNumber(fixture, number);
            if (number >= 10 && number < 25) {
                wanted.add("number-" + number);
            }
        }
        Inbox inbox = new Inbox();
        Check.eventually(wanted.size() + " messages polled", () -> {
            consumer.poll(200).forEach(inbox::add);
            return inbox.messages().size() >= wanted.size();
        });
        inbox.expectExactly(wanted);
    }

    /** A consumer with an expression that is none does not start, and is told where it is wrong. */
    private static void wrong(Fixture fixture) throws Exception {
        fixture.createTopic();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, MessageSelector.bySql("number >= 10 AND"));
        consumer.registerMessageListener(new Inbox().listener());
        try {
            consumer.start();
            throw new AssertionError("the consumer has started");
        } catch (MQClientException refused) {
            Check.equal(SUBSCRIPTION_PARSE_FAILED, refused.getResponseCode(), "code");
            String text = String.valueOf(refused.getErrorMessage());
            Check.that(Fixture.JAVA_BROKER || text.contains("line 1, column 17"), "the place of the error in: " + text);
        }
        DefaultMQPullConsumer reader = fixture.pullConsumer();
        MessageQueue queue = reader.fetchSubscribeMessageQueues(fixture.topic).iterator().next();
        awaitBrokerVersion(reader, queue);
        try {
            PullResult result = reader.pull(queue, MessageSelector.bySql("number >= 10 AND"), 0, 32);
            Check.that(Fixture.JAVA_BROKER, "pulled by a wrong expression: " + result);
        } catch (org.apache.rocketmq.client.exception.MQBrokerException refused) {
            Check.equal(SUBSCRIPTION_PARSE_FAILED, refused.getResponseCode(), "code of a pull");
        }
    }

    /** A running consumer changes its expression; what comes after that is chosen by the new one. */
    private static void update(Fixture fixture) throws Exception {
        fixture.createTopic();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = start(fixture, inbox, "number < 5");
        List<String> wanted = new ArrayList<>(Fixture.bodies("number", 5));
        for (int number = 0; number < 10; number++) {
            sendNumber(fixture, number);
        }
        inbox.expectExactly(wanted);
        consumer.subscribe(fixture.topic, MessageSelector.bySql("number >= 15"));
        // The client tells its brokers at once, but a pull under way is another request.
        Thread.sleep(1_000);
        for (int number = 10; number < 20; number++) {
            sendNumber(fixture, number);
        }
        for (int number = 15; number < 20; number++) {
            wanted.add("number-" + number);
        }
        inbox.expectExactly(wanted);
    }

    /** Before its first heartbeat was answered, the client takes the broker for one that knows no SQL92. */
    private static void awaitBrokerVersion(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        Check.eventually("the broker's version", () -> {
            try {
                consumer.pull(queue, MessageSelector.bySql("TRUE"), 0, 1);
                return true;
            } catch (MQClientException tooEarly) {
                return false;
            }
        });
    }

    private static DefaultMQPushConsumer start(Fixture fixture, Inbox inbox, String expression) throws Exception {
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, MessageSelector.bySql(expression));
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        return consumer;
    }

    private static void sendNumber(Fixture fixture, int number) throws Exception {
        Message message = fixture.message("number-" + number);
        message.putUserProperty("number", String.valueOf(number));
        fixture.producer().send(message);
    }
}
