package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Looking messages up: by key, by unique id, by offset id. */
final class QueryCases {
    private static final long HOUR_MILLIS = 3_600_000;

    private QueryCases() {
    }

    static void register(Map<String, Case> cases) {
        cases.put("query-key", QueryCases::byKey);
        cases.put("query-unique-id", QueryCases::byUniqueId);
        cases.put("view-offset-id", QueryCases::byOffsetId);
    }

    private static void byKey(Fixture fixture) throws Exception {
        send(fixture, "both", "alpha beta");
        send(fixture, "only-beta", "beta");
        send(fixture, "other", "gamma");
        expect(fixture, "alpha", List.of("both"));
        expect(fixture, "beta", List.of("both", "only-beta"));
        expect(fixture, "gamma", List.of("other"));
        expect(fixture, "absent", List.of());
    }

    private static void expect(Fixture fixture, String key, List<String> bodies) throws Exception {
        List<String> found = new ArrayList<>();
        if (!bodies.isEmpty()) {
            Check.eventually(bodies.size() + " messages with key " + key, () -> {
                found.clear();
                found.addAll(query(fixture.producer(), fixture.topic, key));
                return found.size() >= bodies.size();
            });
        } else {
            found.addAll(query(fixture.producer(), fixture.topic, key));
        }
        Check.sameElements(bodies, found, "key " + key);
    }

    private static List<String> query(DefaultMQProducer producer, String topic, String key) throws Exception {
        long now = System.currentTimeMillis();
        try {
            return producer.queryMessage(topic, key, 32, now - HOUR_MILLIS, now + HOUR_MILLIS)
                .getMessageList().stream().map(Inbox::body).toList();
        } catch (MQClientException nothingFound) {
            return List.of();
        }
    }

    private static void byUniqueId(Fixture fixture) throws Exception {
        SendResult result = send(fixture, "by-unique-id", "key");
        MessageExt found = viewEventually(fixture, result.getMsgId());
        Check.equal("by-unique-id", Inbox.body(found), "body");
        Check.equal(result.getQueueOffset(), found.getQueueOffset(), "queue offset");
    }

    private static void byOffsetId(Fixture fixture) throws Exception {
        SendResult result = send(fixture, "by-offset-id", "key");
        MessageExt found = viewEventually(fixture, result.getOffsetMsgId());
        Check.equal("by-offset-id", Inbox.body(found), "body");
        Check.equal(result.getMsgId(), found.getMsgId(), "message id");
        Check.equal("key", found.getKeys(), "keys");
    }

    private static MessageExt viewEventually(Fixture fixture, String id) throws Exception {
        MessageExt[] found = new MessageExt[1];
        Check.eventually("message " + id, () -> {
            try {
                found[0] = fixture.producer().viewMessage(fixture.topic, id);
            } catch (MQClientException notIndexedYet) {
                return false;
            }
            return found[0] != null;
        });
        return found[0];
    }

    private static SendResult send(Fixture fixture, String body, String keys) throws Exception {
        return fixture.producer().send(
            new Message(fixture.topic, "tag", keys, body.getBytes(StandardCharsets.UTF_8)));
    }
}
