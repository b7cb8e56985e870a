//! Administration of the broker itself: configuration (25, 26), runtime information (28), statistics (315), cleaning (306, 329), HA (905, 907, 1007).

use std::collections::BTreeMap;

use crate::broker::context::BrokerContext;
use crate::broker::settings::SettingsError;
use crate::broker::stats::{Totals, WindowValue, Windows};
use crate::common::topic::DataVersion;
use crate::net::service::Placement;
use crate::remoting::body::admin::{StatsItem, StatsWindow, lone_master_json, stats_item_json, stats_items_json, table_json};
use crate::remoting::body::topic::write_data_version;
use crate::remoting::code::{request as code, response};
use crate::remoting::command::{Command, VERSION};

use super::Handler;
use super::admin_topic::check_master;
use super::answer::{Answer, Outcome, Refusal, send};

/// What this file serves.
pub(crate) const REQUESTS: &[(i32, Placement, Handler)] = &[
    (code::GET_BROKER_CONFIG, Placement::Pool, |context, _request, to| send(to, Ok(configuration(context)))),
    (code::UPDATE_BROKER_CONFIG, Placement::Pool, |context, request, to| send(to, update_configuration(context, request))),
    (code::GET_BROKER_RUNTIME_INFO, Placement::Pool, |context, _request, to| send(to, Ok(runtime_info(context)))),
    (code::VIEW_BROKER_STATS_DATA, Placement::Pool, |context, request, to| send(to, statistics(context, request))),
    (code::CLEAN_EXPIRED_CONSUMEQUEUE, Placement::Pool, |context, _request, to| send(to, Ok(clean_files(context)))),
    (code::DELETE_EXPIRED_COMMITLOG, Placement::Pool, |context, _request, to| send(to, Ok(clean_files(context)))),
    (code::GET_BROKER_HA_STATUS, Placement::Pool, |context, _request, to| send(to, ha_status(context))),
    (code::GET_BROKER_EPOCH_CACHE, Placement::Inline, |_context, _request, to| {
        to.error(response::SYSTEM_ERROR, "this request only for controllerMode ");
    }),
    // A lone master has nobody to act for.
    (code::NOTIFY_MIN_BROKER_ID_CHANGE, Placement::Inline, |_context, _request, to| to.ok()),
];

/// Items that one answer lists at most.
const MAX_LISTED_ITEMS: usize = 10_000;
/// What the reference's tools show as the version.
const VERSION_NAME: &str = "V5_5_0";

fn configuration(context: &BrokerContext) -> Answer {
    let (text, version) = context.settings.text();
    Answer { body: text.into(), ..Answer::default() }.field("version", version_text(&version))
}

fn update_configuration(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    if request.body.is_empty() {
        return Err(Refusal(response::SYSTEM_ERROR, "string2Properties error: the body is empty".to_owned()));
    }
    let now_ms = context.clock.now_ms();
    let (changed, version) = context.settings.update(request.body, now_ms).map_err(|error| match error {
        SettingsError::BlackListed(key) => {
            Refusal(response::NO_PERMISSION, format!("Can not update config in black list. Key: {key} (configBlackList)"))
        }
        SettingsError::Other(text) => Refusal(response::SYSTEM_ERROR, text),
    })?;
    context.topics.set_auto_create(changed.auto_create_topic);
    context.groups.set_auto_create(changed.auto_create_subscription_group);
    if changed.keys.iter().any(|key| key == "brokerPermission") {
        context.topics.touch(now_ms);
        context.registration.register_all();
    }
    let later = &changed.at_next_start;
    let remark = (!later.is_empty()).then(|| format!("takes effect at the next start: {}", later.join(", ")));
    Ok(Answer { remark, ..Answer::default() }.field("version", version_text(&version)))
}

fn version_text(version: &DataVersion) -> String {
    let mut text = String::new();
    write_data_version(&mut text, version);
    text
}

fn clean_files(context: &BrokerContext) -> Answer {
    context.store.delete_expired_files();
    Answer::default()
}

fn ha_status(context: &BrokerContext) -> Outcome {
    check_master(context, "HA status")?;
    Ok(Answer::json(lone_master_json(context.store.stats().max_physical_offset)))
}

fn statistics(context: &BrokerContext, request: &Command<'_>) -> Outcome {
    let name = request.ext.need_text("statsName")?;
    let key = request.ext.need_text("statsKey")?;
    let now_ms = context.clock.now_ms();
    let cluster = &context.config.cluster_name;
    if key == "*" {
        let items = context.stats.view_all(&name, cluster, now_ms, MAX_LISTED_ITEMS);
        return Ok(Answer::json(stats_items_json(&items.iter().map(|(key, windows)| (key.clone(), item(windows))).collect())));
    }
    let absent = || Refusal(response::SYSTEM_ERROR, format!("The stats <{name}> <{key}> not exist"));
    let windows = context.stats.view(&name, &key, cluster, now_ms).ok_or_else(absent)?;
    Ok(Answer::json(stats_item_json(&item(&windows))))
}

fn item(windows: &Windows) -> StatsItem {
    let window = |value: WindowValue| StatsWindow { sum: value.sum as i64, tps: value.tps, average: value.average };
    [window(windows.minute), window(windows.hour), window(windows.day)]
}

fn runtime_info(context: &BrokerContext) -> Answer {
    let mut table = BTreeMap::new();
    about_process(context, &mut table);
    about_counts(context, &mut table);
    about_store(context, &mut table);
    about_queues_of_requests(&mut table);
    for (level, next, max) in context.delay.offsets() {
        table.insert(format!("scheduleMessageOffset_{level}"), format!("{next},{max}"));
    }
    Answer::json(table_json(&table))
}

type Table = BTreeMap<String, String>;
/// Names of a rate, and the total it is the rate of.
type Rate = (&'static [&'static str], fn(&Totals) -> u64);

fn put(table: &mut Table, name: &str, value: impl ToString) {
    table.insert(name.to_owned(), value.to_string());
}

fn about_process(context: &BrokerContext, table: &mut Table) {
    let now_ms = context.clock.now_ms();
    let seconds = (now_ms - context.boot_ms).max(0) / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    put(table, "brokerVersionDesc", VERSION_NAME);
    put(table, "brokerVersion", VERSION);
    put(table, "petrelVersion", env!("CARGO_PKG_VERSION"));
    put(table, "bootTimestamp", context.boot_ms);
    put(table, "currentTimeMillis", now_ms);
    put(table, "runtime", format!("[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]", seconds % 60));
    put(table, "brokerActive", context.config.broker_id == 0);
    put(table, "startAcceptSendRequestTimeStamp", 0);
    put(table, "heldPulls", context.hold.len());
}

fn about_counts(context: &BrokerContext, table: &mut Table) {
    let now_ms = context.clock.now_ms();
    let stats = &context.stats;
    let totals = stats.totals();
    for (name, daily) in ["Put", "Get"].iter().zip(stats.daily(now_ms)) {
        let (now, today, yesterday) = daily;
        put(table, &format!("msg{name}TotalTodayNow"), now);
        put(table, &format!("msg{name}TotalTodayMorning"), today);
        put(table, &format!("msg{name}TotalYesterdayMorning"), yesterday);
    }
    let rates: [Rate; 5] = [
        (&["putTps"], |totals| totals.put_messages),
        (&["getFoundTps"], |totals| totals.get_found),
        (&["getMissTps"], |totals| totals.get_missed),
        (&["getTotalTps"], |totals| totals.get_found + totals.get_missed),
        // Readers of the older line know it with one r.
        (&["getTransferredTps", "getTransferedTps"], |totals| totals.get_messages),
    ];
    for (names, read) in rates {
        let [ten, sixty, six_hundred] = stats.rates(now_ms, read);
        names.iter().for_each(|name| put(table, name, format!("{ten:?} {sixty:?} {six_hundred:?}")));
    }
    put(table, "putMessageTimesTotal", totals.put_messages);
    put(table, "putMessageSizeTotal", totals.put_bytes);
    put(table, "putMessageAverageSize", format!("{:?}", totals.put_bytes as f64 / totals.put_messages.max(1) as f64));
    put(table, "putMessageFailedTimes", totals.put_failures.max(context.store.stats().put_failed));
    put(table, "putMessageEntireTimeMax", stats.put_latency().max_ms());
    put(table, "getMessageEntireTimeMax", 0);
    put(table, "putMessageDistributeTime", stats.put_latency().distribution());
    put(table, "putLatency99", format!("{:.2}", stats.put_latency().quantile_ms(0.99)));
    put(table, "putLatency999", format!("{:.2}", stats.put_latency().quantile_ms(0.999)));
}

fn about_store(context: &BrokerContext, table: &mut Table) {
    let store = context.store.stats();
    // Rounded up to whole percents, as the reference does.
    let ratio = format!("{:?}", (store.commit_log_disk_ratio * 100.0).ceil() / 100.0);
    let unflushed = (store.max_physical_offset - store.flushed_offset).max(0);
    put(table, "commitLogMinOffset", store.min_physical_offset);
    put(table, "commitLogMaxOffset", store.max_physical_offset);
    put(table, "earliestMessageTimeStamp", store.earliest_store_timestamp);
    put(table, "dispatchBehindBytes", store.dispatch_behind_bytes);
    put(table, "dispatchMaxBuffer", 0);
    put(table, "pageCacheLockTimeMills", store.put_lock_ms);
    put(table, "commitLogDiskRatio", &ratio);
    for folder in context.config.store.writable_commit_log_folders() {
        put(table, &format!("commitLogDiskRatio_{}", folder.display()), &ratio);
    }
    put(table, "consumeQueueDiskRatio", &ratio);
    put(table, "commitLogDirCapacity", format!("Total : {}, Free : {}.", size_text(store.disk_total), size_text(store.disk_free)));
    put(table, "diskFreeBytes", store.disk_free);
    put(table, "remainHowManyDataToFlush", size_text(unflushed.unsigned_abs()));
    put(table, "remainHowManyDataToCommit", "0 B");
    put(table, "remainTransientStoreBufferNumbs", i32::MAX);
    put(table, "flushBehindBytes", unflushed);
    put(table, "visibleBehindBytes", store.dispatch_behind_bytes);
    let state = match (context.store.sync_failure(), context.store.refusal()) {
        (Some(why), _) => format!("failed: {why}"),
        (None, Some(why)) => format!("refusing: {why}"),
        (None, None) => "ok".to_owned(),
    };
    put(table, "storageState", state);
}

/// Requests are served where they are read, so nothing queues by kind; readers divide by and compare with these numbers.
fn about_queues_of_requests(table: &mut Table) {
    for kind in ["send", "pull", "litePull", "query", "ack"] {
        put(table, &format!("{kind}ThreadPoolQueueSize"), 0);
        put(table, &format!("{kind}ThreadPoolQueueCapacity"), 10_000);
        put(table, &format!("{kind}ThreadPoolQueueHeadWaitTimeMills"), 0);
    }
    put(table, "EndTransactionQueueSize", 0);
    put(table, "EndTransactionThreadPoolQueueCapacity", 10_000);
    for name in ["timerReadBehind", "timerOffsetBehind", "timerCongestNum"] {
        put(table, name, 0);
    }
    for name in ["timerEnqueueTps", "timerDequeueTps"] {
        put(table, name, "0.0");
    }
}

/// As the reference prints sizes: steps of 1024, one decimal from KiB on.
fn size_text(bytes: u64) -> String {
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1_024.0;
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB"].into_iter();
    let mut unit = units.next().unwrap_or("KiB");
    while size >= 1_024.0 {
        let Some(next) = units.next() else { break };
        unit = next;
        size /= 1_024.0;
    }
    format!("{size:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (270_582_939_648, "252.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
