package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What bodies, keys and tags may hold, and how large a body may be. */
final class BodyCases {
    private static final int LIMIT = 4_194_304;

    private BodyCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("non-ascii", BodyCases::nonAscii);
        cases.put("compressed", BodyCases::compressed);
        cases.put("body-4mib", BodyCases::largest);
        cases.put("body-too-large", BodyCases::tooLarge);
    }

    private static void nonAscii(Fixture fixture) throws Exception {
        fixture.createTopic();
        String tag = "标签-étiquette";
        String key = "ключ-🔑";
        String body = "こんにちは, Grüße, 🦀";
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, tag);
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        Message message = new Message(fixture.topic, tag, key, body.getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("eigenschaft-ß", "värde-值");
        fixture.producer().send(message);
        fixture.producer().send(
            new Message(fixture.topic, "标签-other", key, "not subscribed".getBytes(StandardCharsets.UTF_8)));

        inbox.expectExactly(List.of(body));
        MessageExt received = inbox.messages().get(0);
        Check.equal(tag, received.getTags(), "tag");
        Check.equal(key, received.getKeys(), "key");
        Check.equal("värde-值", received.getUserProperty("eigenschaft-ß"), "user property");
        Check.eventually("both messages by the key", () -> {
            long now = System.currentTimeMillis();
            try {
                return fixture.producer().queryMessage(fixture.topic, key, 32, 0, now + 60_000)
                    .getMessageList().size() == 2;
            } catch (MQClientException notIndexedYet) {
                return false;
            }
        });
    }

    /** The client compresses bodies over 4 KiB; the receiver sees them as they were. */
    private static void compressed(Fixture fixture) throws Exception {
        String body = "compressible ".repeat(10_000);
        fixture.producer().send(fixture.message(body));
        List<MessageExt> stored = fixture.readAll(fixture.topic, 1);
        Check.that(Inbox.body(stored.get(0)).equals(body), "the body as it was sent");
        Check.that(stored.get(0).getStoreSize() < body.length() / 2, "a stored size below half of the body's");
    }

    private static void largest(Fixture fixture) throws Exception {
        byte[] body = incompressible(LIMIT);
        DefaultMQProducer producer = largeProducer(fixture);
        producer.send(new Message(fixture.topic, body));
        fixture.awaitRoute(fixture.topic);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = fixture.pushConsumer();
        consumer.subscribe(fixture.topic, "*");
        consumer.registerMessageListener(inbox.listener());
        consumer.start();
        inbox.awaitCount(1);
        Check.equal(1, inbox.messages().size(), "messages");
        Check.that(Arrays.equals(body, inbox.messages().get(0).getBody()), "the body as it was sent");
    }

    private static void tooLarge(Fixture fixture) throws Exception {
        fixture.createTopic();
        DefaultMQProducer producer = largeProducer(fixture);
        try {
            producer.send(new Message(fixture.topic, incompressible(LIMIT + 1)));
        } catch (MQBrokerException refusal) {
            checkRefusal(refusal);
            fixture.sendAll(List.of("after"));
            Check.equal(List.of("after"),
                fixture.readAll(fixture.topic, 1).stream().map(Inbox::body).toList(), "stored");
            return;
        }
        throw new AssertionError("a body of " + (LIMIT + 1) + " bytes was accepted");
    }

    /** Names the limit and the actual size; the Java broker's text has no size. */
    private static void checkRefusal(MQBrokerException refusal) {
        String text = refusal.getErrorMessage();
        Check.equal(13, refusal.getResponseCode(), "code of the refusal");
        Check.that(text.contains("4194304"), "the limit in: " + text);
        Check.that(Fixture.JAVA_BROKER || text.contains("4194305"), "the actual size in: " + text);
    }

    private static DefaultMQProducer largeProducer(Fixture fixture) throws Exception {
        DefaultMQProducer producer = fixture.newProducer();
        producer.setMaxMessageSize(2 * LIMIT);
        producer.setCompressMsgBodyOverHowmuch(2 * LIMIT);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private static byte[] incompressible(int size) {
        byte[] body = new byte[size];
        new Random(size).nextBytes(body);
        return body;
    }
}
