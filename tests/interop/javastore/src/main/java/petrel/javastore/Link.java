package petrel.javastore;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** Requests to one server, by their numbers: the classes that carry them lie elsewhere in each version. */
final class Link implements AutoCloseable {
    static final int PULL = 11;
    static final int QUERY_MESSAGE = 12;
    static final int UPDATE_CONSUMER_OFFSET = 15;
    static final int CREATE_TOPIC = 17;
    static final int GET_ALL_TOPICS = 21;
    static final int GET_MAX_OFFSET = 30;
    static final int GET_MIN_OFFSET = 31;
    static final int VIEW_MESSAGE = 33;
    static final int HEART_BEAT = 34;
    static final int SEND_BACK = 36;
    static final int END_TRANSACTION = 37;
    static final int GET_ALL_CONSUMER_OFFSETS = 43;
    static final int GET_ALL_DELAY_OFFSETS = 45;
    static final int GET_ROUTE = 105;
    static final int CREATE_GROUP = 200;
    static final int GET_ALL_GROUPS = 201;
    static final int SEND = 310;
    static final int SEND_BATCH = 320;
    static final int SEND_REPLY = 325;
    static final int POP = 200050;
    static final int ACK = 200051;

    static final int SUCCESS = 0;
    static final int PULL_NOT_FOUND = 19;
    static final int PULL_RETRY_IMMEDIATELY = 20;
    static final int PULL_OFFSET_MOVED = 21;
    static final int QUERY_NOT_FOUND = 22;

    private static final long TIMEOUT_MS = 10_000;

    private final String broker;
    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());

    Link(String broker) {
        this.broker = broker;
        client.start();
    }

    @Override
    public void close() {
        client.shutdown();
    }

    /** Fields from names and values in turn. */
    static Map<String, String> fields(Object... namesAndValues) {
        Map<String, String> fields = new HashMap<>();
        for (int index = 0; index < namesAndValues.length; index += 2) {
            fields.put((String) namesAndValues[index], String.valueOf(namesAndValues[index + 1]));
        }
        return fields;
    }

    /** The answer, whatever its code. */
    RemotingCommand ask(int code, Map<String, String> fields, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        request.setExtFields(new HashMap<>(fields));
        request.setBody(body);
        return client.invokeSync(broker, request, TIMEOUT_MS);
    }

    RemotingCommand call(int code, Map<String, String> fields, byte[] body) throws Exception {
        RemotingCommand answer = ask(code, fields, body);
        if (answer.getCode() != SUCCESS) {
            throw new IllegalStateException("request " + code + " " + fields + " is refused with " + answer.getCode() + " " + answer.getRemark());
        }
        return answer;
    }

    RemotingCommand call(int code, Object... namesAndValues) throws Exception {
        return call(code, fields(namesAndValues), null);
    }

    /** The body as JSON; keys may be bare numbers. */
    JsonObject table(int code) throws Exception {
        byte[] body = call(code).getBody();
        String text = body == null ? "" : new String(body, java.nio.charset.StandardCharsets.UTF_8);
        return text.isBlank() ? new JsonObject() : JsonParser.parseString(text).getAsJsonObject();
    }

    long offset(int code, String topic, int queueId) throws Exception {
        return Long.parseLong(call(code, "topic", topic, "queueId", queueId).getExtFields().get("offset"));
    }

    /** Everything that the queue serves from {@code offset} on. */
    List<MessageExt> pull(String topic, int queueId, long offset) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        long next = offset;
        while (true) {
            RemotingCommand answer = ask(PULL, fields(
                "consumerGroup", "TOOLS_CONSUMER", "topic", topic, "queueId", queueId, "queueOffset", next, "maxMsgNums", 32,
                "sysFlag", 4, "commitOffset", 0, "suspendTimeoutMillis", 0, "subscription", "*",
                "subVersion", System.currentTimeMillis(), "expressionType", "TAG"), null);
            switch (answer.getCode()) {
                case SUCCESS -> messages.addAll(decode(answer.getBody()));
                case PULL_RETRY_IMMEDIATELY, PULL_OFFSET_MOVED -> { }
                case PULL_NOT_FOUND -> {
                    return messages;
                }
                default -> throw new IllegalStateException(
                    "pull of " + topic + " " + queueId + " at " + next + " is refused with " + answer.getCode() + " " + answer.getRemark());
            }
            long told = Long.parseLong(answer.getExtFields().get("nextBeginOffset"));
            if (told <= next && answer.getCode() != PULL_OFFSET_MOVED) {
                throw new IllegalStateException("pull of " + topic + " " + queueId + " at " + next + " goes on at " + told);
            }
            next = told;
        }
    }

    /** Messages with their bodies as stored. */
    static List<MessageExt> decode(byte[] body) {
        List<MessageExt> messages = new ArrayList<>();
        ByteBuffer rest = ByteBuffer.wrap(body == null ? new byte[0] : body);
        while (rest.hasRemaining()) {
            MessageExt message = MessageDecoder.decode(rest, true, false);
            if (message == null) {
                throw new IllegalStateException("no message can be read at " + rest.position() + " of " + rest.limit() + " bytes");
            }
            messages.add(message);
        }
        return messages;
    }
}
