//! Requests that a consumer answers: running information (307), consuming one message (309), its offsets (221, on behalf of 223).
//!
//! The broker passes the request on over the consumer's connection and its answer back, byte for byte: clients of other languages write
//! these bodies in shapes of their own. Nothing waits: the answer is passed on by the thread that receives it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::broker::clients::Client;
use crate::broker::context::BrokerContext;
use crate::common::message_id;
use crate::common::record::Record;
use crate::net::connection::{InvokeCallback, InvokeError};
use crate::net::responder::Responder;
use crate::net::service::Placement;
use crate::remoting::body::admin::{ConsumerStatus, consumer_status_json};
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Body, Command, OwnedCommand};
use crate::remoting::header::client::ConsumerClientRequest;

use super::Handler;
use super::answer::{Answer, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::GET_CONSUMER_RUNNING_INFO, Placement::Inline, running_info),
    // Looks a message up.
    (code::CONSUME_MESSAGE_DIRECTLY, Placement::Pool, consume_directly),
    (code::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Placement::Inline, consumer_status),
];

/// Time for a consumer to answer 307 and 309.
const RELAY_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a consumer to answer 221.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// First version that answers 307 and 309 (3.1.8-SNAPSHOT).
const FIRST_RELAY_VERSION: i32 = 62;
/// First version that answers 220 and 221 (3.0.7-SNAPSHOT).
pub(super) const FIRST_STATUS_VERSION: i32 = 28;

fn running_info(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    relay(context, request, responder, |_| Ok((Vec::new(), Body::Empty)));
}

fn consume_directly(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    relay(context, request, responder, |group_sys_flag| {
        let mut fields =
            vec![("brokerName".to_owned(), context.config.broker_name.clone()), ("groupSysFlag".to_owned(), group_sys_flag.to_string())];
        if let Some(topic) = request.ext.text("topic").and_then(|topic| context.topics.get(&topic)) {
            fields.push(("topicSysFlag".to_owned(), topic.topic_sys_flag.to_string()));
        }
        let Some(id) = request.ext.text("msgId") else { return Ok((fields, Body::Empty)) };
        let malformed = || Refusal(response::SYSTEM_ERROR, format!("the message id {id:?} is no offset id (32 or 56 hexadecimal digits)"));
        let (_, offset) = message_id::parse(&id).ok_or_else(malformed)?;
        let record = context.store.record_at(offset).filter(|record| Record::parse(record).is_ok());
        let absent = || Refusal(response::SYSTEM_ERROR, format!("no message at offset {offset} (message id {id})"));
        Ok((fields, Body::Shared([record.ok_or_else(absent)?].into_iter().collect())))
    });
}

/// Fields to add or replace, and a body.
type Addition = Result<(Vec<(String, String)>, Body), Refusal>;

/// Passes a request on to the consumer it names, with what `addition` makes of the group's flags.
fn relay(context: &BrokerContext, request: &Command<'_>, responder: Responder, addition: impl FnOnce(i32) -> Addition) {
    let header = match ConsumerClientRequest::decode(request) {
        Ok(header) => header,
        Err(error) => return send(responder, Err(error.into())),
    };
    let (group, client_id) = (header.consumer_group.into_owned(), header.client_id.into_owned());
    let client = match consumer(context, &group, &client_id) {
        Ok(client) => client,
        Err(refusal) => return send(responder, Err(refusal)),
    };
    let group_sys_flag = context.groups.get(&group).map_or(0, |config| config.group_sys_flag);
    let (added, body) = match addition(group_sys_flag) {
        Ok(addition) => addition,
        Err(refusal) => return send(responder, Err(refusal)),
    };
    let mut fields = forwarded_fields(request, &added);
    fields.extend(added);
    let done: InvokeCallback = Box::new(move |answer| match answer {
        Ok(answer) => pass_back(&answer, responder),
        Err(InvokeError::Timeout(_, ms)) => {
            responder.error(response::CONSUME_MSG_TIMEOUT, &format!("consumer <{group}> <{client_id}> Timeout: no answer within {ms} ms"));
        }
        Err(error) => responder.error(response::SYSTEM_ERROR, &format!("invoke consumer <{group}> <{client_id}> failed: {error}")),
    });
    client.connection.invoke(request.code, &fields, body, RELAY_TIMEOUT, done);
}

fn consumer(context: &BrokerContext, group: &str, client_id: &str) -> Result<Arc<Client>, Refusal> {
    let client = context.clients.consumer_by_client_id(group, client_id);
    let client = client.ok_or_else(|| Refusal(response::SYSTEM_ERROR, format!("The Consumer <{group}> <{client_id}> not online")))?;
    if client.version < FIRST_RELAY_VERSION {
        let version = client.version;
        let text = format!(
            "The Consumer <{client_id}> Version <{version}> too low to finish, please upgrade it to {FIRST_RELAY_VERSION} (V3_1_8_SNAPSHOT) or later"
        );
        return Err(Refusal(response::SYSTEM_ERROR, text));
    }
    Ok(client)
}

/// The request's fields without its credentials and without those that are added anew.
fn forwarded_fields(request: &Command<'_>, added: &[(String, String)]) -> Vec<(String, String)> {
    const CREDENTIALS: [&str; 4] = ["AccessKey", "Signature", "SecurityToken", "OnsChannel"];
    let fields = request.ext.iter().map(|(name, value)| (name.text().into_owned(), value.text().into_owned()));
    fields.filter(|(name, _)| !CREDENTIALS.contains(&name.as_str()) && !added.iter().any(|(other, _)| other == name)).collect()
}

fn pass_back(answer: &OwnedCommand, responder: Responder) {
    let answer = answer.view();
    let fields: Vec<(String, String)> =
        answer.ext.iter().map(|(name, value)| (name.text().into_owned(), value.text().into_owned())).collect();
    let body = if answer.body.is_empty() { Body::Empty } else { Body::Owned(answer.body.to_vec()) };
    match relayed_code(answer.code) {
        Ok(code) => responder.reply(code, answer.remark.as_deref(), &fields, body),
        Err(why) => {
            let remark = answer.remark.as_deref().map_or_else(|| why.clone(), |remark| format!("{why}: {remark}"));
            responder.reply(response::SYSTEM_ERROR, Some(&remark), &fields, body);
        }
    }
}

/// A consumer's response code, if it is one: no peer could read a larger one in the binary header, and there are no negative ones.
fn relayed_code(code: i32) -> Result<i32, String> {
    let limit = i32::from(i16::MAX);
    if (0..=limit).contains(&code) { Ok(code) } else { Err(format!("the consumer answered with code {code}, codes are 0 to {limit}")) }
}

/// 223: asks each consumer of the group (or the one named) and answers when all have answered or their time is up.
fn consumer_status(context: &Arc<BrokerContext>, request: &Command<'_>, responder: Responder) {
    let asked = match consumers_to_ask(context, request) {
        Ok(asked) => asked,
        Err(refusal) => return send(responder, Err(refusal)),
    };
    let gathered = Arc::new(GatheredStatus { responder: Mutex::new(Some(responder)), clients: Mutex::default() });
    for client in asked.clients {
        let gathered = Arc::clone(&gathered);
        let client_id = client.client_id.clone();
        let done: InvokeCallback = Box::new(move |answer| {
            let status = answer.map_err(|error| error.to_string()).and_then(|answer| read_status(&answer));
            match status {
                Ok(status) => {
                    gathered.clients.lock().insert(client_id, status);
                }
                Err(why) => log::warn!("consumer told no status: client={client_id} cause={why}"),
            }
        });
        let header = [("topic", asked.topic.as_str()), ("group", asked.group.as_str())];
        client.connection.invoke(code::GET_CONSUMER_STATUS_FROM_CLIENT, &header, Body::Empty, STATUS_TIMEOUT, done);
    }
}

struct Asked {
    topic: String,
    group: String,
    clients: Vec<Arc<Client>>,
}

fn consumers_to_ask(context: &BrokerContext, request: &Command<'_>) -> Result<Asked, Refusal> {
    let topic = request.ext.need_text("topic")?.into_owned();
    let group = request.ext.need_text("group")?.into_owned();
    let only = request.ext.text("clientAddr").filter(|address| !address.trim().is_empty());
    let offline = || Refusal(response::SYSTEM_ERROR, format!("No Any Consumer online in the consumer group: [{group}]"));
    let known = context.clients.consumer_group(&group).ok_or_else(offline)?;
    let mut clients = known.clients();
    if let Some(old) = clients.iter().find(|client| client.version < FIRST_STATUS_VERSION) {
        let text = format!(
            "the client {} does not support this feature, its version is {}, needed is {FIRST_STATUS_VERSION}",
            old.client_id, old.version
        );
        return Err(Refusal(response::SYSTEM_ERROR, text));
    }
    let is_meant =
        |client: &Arc<Client>| only.as_deref().is_none_or(|only| client.client_id == only || client.connection.peer().to_string() == only);
    clients.retain(is_meant);
    Ok(Asked { topic, group, clients })
}

fn read_status(answer: &OwnedCommand) -> Result<ConsumerStatus, String> {
    let answer = answer.view();
    if answer.code != response::SUCCESS {
        return Err(format!("code {}: {}", answer.code, answer.remark.as_deref().unwrap_or_default()));
    }
    ConsumerStatus::from_json(answer.body)
}

/// Answers 223 when the last call lets go of it.
struct GatheredStatus {
    responder: Mutex<Option<Responder>>,
    clients: Mutex<BTreeMap<String, ConsumerStatus>>,
}

impl Drop for GatheredStatus {
    fn drop(&mut self) {
        if let Some(responder) = self.responder.lock().take() {
            send(responder, Ok(Answer::json(consumer_status_json(&self.clients.lock()))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_consumers_are_checked() {
        for code in [0, 1, 209, 32_767] {
            assert_eq!(relayed_code(code), Ok(code));
        }
        for code in [-1, i32::MIN, 32_768, i32::MAX] {
            assert!(relayed_code(code).unwrap_err().contains(&code.to_string()), "{code}");
        }
    }
}
