//! Messages and receipts as JSON, the contract of the command line.

use serde_json::{Value, json};

use crate::client::SendReceipt;
use crate::common::message::MessageExt;
use crate::common::properties;

/// A received message: `body` when it is text, `bodyBase64` when it is not.
pub fn message(message: &MessageExt) -> Value {
    let properties = &message.message.properties;
    let keys: Vec<&str> =
        properties.get(properties::KEYS).map(|keys| keys.split(' ').filter(|key| !key.is_empty()).collect()).unwrap_or_default();
    let mut value = json!({
        "topic": message.message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.message_id(),
        "offsetMsgId": message.offset_message_id(),
        "tags": properties.get(properties::TAGS),
        "keys": keys,
        "properties": properties,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host.to_string(),
        "reconsumeTimes": message.reconsume_times,
    });
    match std::str::from_utf8(&message.message.body) {
        Ok(text) => value["body"] = text.into(),
        Err(_) => value["bodyBase64"] = base64(&message.message.body).into(),
    }
    value
}

/// A receipt.
pub fn receipt(receipt: &SendReceipt) -> Value {
    json!({
        "status": receipt.status.name(),
        "msgId": receipt.message_id,
        "offsetMsgId": receipt.offset_message_id,
        "topic": receipt.queue.topic,
        "brokerName": receipt.queue.broker_name,
        "queueId": receipt.queue.queue_id,
        "queueOffset": receipt.queue_offset,
        "transactionId": receipt.transaction_id,
        "region": receipt.region,
    })
}

/// Standard Base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word = group.iter().chain([0, 0].iter()).take(3).fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        for digit in 0..4 {
            let used = digit <= group.len();
            text.push(if used { char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::message::Message;

    #[test]
    fn base64_of_the_standard() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd]), "//79");
    }

    #[test]
    fn a_message_has_the_members_of_the_contract() {
        let mut received = MessageExt {
            message: Message::new("T", "héllo").tag("t").key("k1").key("k2"),
            broker_name: "a".into(),
            queue_id: 3,
            queue_offset: 7,
            physical_offset: 4000,
            store_size: 100,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: "1.2.3.4:5".parse().unwrap(),
            store_timestamp: 2,
            store_host: "192.168.1.1:10911".parse().unwrap(),
            reconsume_times: 1,
            prepared_transaction_offset: 0,
        };
        let value = message(&received);
        assert_eq!(value["body"], "héllo");
        assert_eq!((&value["tags"], &value["keys"]), (&json!("t"), &json!(["k1", "k2"])));
        assert_eq!(value["offsetMsgId"], "C0A8010100002A9F0000000000000FA0");
        assert_eq!((&value["queueId"], &value["queueOffset"], &value["reconsumeTimes"]), (&json!(3), &json!(7), &json!(1)));
        assert_eq!((&value["bornHost"], &value["storeTimestamp"], &value["bornTimestamp"]), (&json!("1.2.3.4:5"), &json!(2), &json!(1)));
        received.message.body = vec![0xff, 0xfe, 0xfd];
        let value = message(&received);
        assert_eq!((&value["bodyBase64"], value.get("body")), (&json!("//79"), None));
    }
}
