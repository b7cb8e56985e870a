//! A store's metadata files: whether they can be read, and whether what they say fits the queues.
//!
//! Nothing is written: where a start would take a backup, this says that it would.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::common::topic::SCHEDULE_TOPIC;
use crate::remoting::fastjson::{self, Value};
use crate::store::check::{Finding, Kind, Remedy, Report, Severity};

/// Files that a start cannot do without reading.
const NEEDED: [&str; 5] = [TOPICS, "subscriptionGroup.json", CONSUMER_OFFSETS, DELAY_OFFSETS, "messageRequestMode.json"];
/// Files of which nothing here makes use; a Java broker does.
const OTHERS: [&str; 4] = ["consumerFilter.json", "consumerOrderInfo.json", "topicQueueMapping.json", "stats.json"];
const TOPICS: &str = "topics.json";
const CONSUMER_OFFSETS: &str = "consumerOffset.json";
const DELAY_OFFSETS: &str = "delayOffset.json";

/// What lies at a path.
enum Copy {
    Absent,
    Blank,
    Read(Value),
    Damaged(String),
}

impl Copy {
    fn read(path: &Path) -> Self {
        match std::fs::read(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::Absent,
            Err(error) => Self::Damaged(error.to_string()),
            Ok(bytes) if bytes.iter().all(u8::is_ascii_whitespace) => Self::Blank,
            Ok(bytes) => match fastjson::parse(&bytes) {
                Ok(value @ Value::Object(_)) => Self::Read(value),
                Ok(_) => Self::Damaged("no JSON object".to_owned()),
                Err(why) => Self::Damaged(why),
            },
        }
    }
}

/// What the metadata files say.
#[derive(Default)]
pub(super) struct Metadata {
    /// The topics there are; `None` where that is not known.
    pub(super) topics: Option<BTreeSet<String>>,
    folder: PathBuf,
    consumer_offsets: Option<Value>,
    delay_offsets: Option<Value>,
    findings: Vec<Finding>,
}

impl Metadata {
    /// Reads the files of the store in `root`.
    pub(super) fn read(root: &Path) -> Self {
        let mut this = Self { folder: root.join("config"), ..Self::default() };
        for name in NEEDED {
            let value = this.file(name, Severity::Error);
            match name {
                TOPICS => this.topics = value.as_ref().and_then(topics),
                CONSUMER_OFFSETS => this.consumer_offsets = value,
                DELAY_OFFSETS => this.delay_offsets = value,
                _ => {}
            }
        }
        for name in OTHERS {
            this.file(name, Severity::Warning);
        }
        this
    }

    /// The content that a start would use. `lost`: how bad it is that there is none, although there was.
    fn file(&mut self, name: &str, lost: Severity) -> Option<Value> {
        let path = self.folder.join(name);
        let backup = Copy::read(&self.folder.join(format!("{name}.bak")));
        let (value, kind, severity, text, remedy) = match (Copy::read(&path), backup) {
            (Copy::Read(value), _) => return Some(value),
            (Copy::Absent, Copy::Absent | Copy::Blank) => return None,
            (main, Copy::Read(value)) => {
                let state = main.state();
                (Some(value), Kind::MetadataBackup, Severity::Warning, format!("{state}; its backup can be read"), Remedy::Start)
            }
            (Copy::Blank, Copy::Absent | Copy::Blank) => {
                (None, Kind::MetadataDamaged, Severity::Warning, "empty, and there is no backup".to_owned(), Remedy::Nothing)
            }
            (main, backup) => {
                let text = format!("{}; its backup: {}", main.state(), backup.state());
                let remedy = Remedy::Act("repair one of them, or start with allowEmptyConfigOnCorruption=true to begin without");
                (None, Kind::MetadataDamaged, lost, text, remedy)
            }
        };
        self.findings.push(Finding::new(kind, severity, &path, text, remedy));
        value
    }

    /// Adds what was found, and what does not fit the queues that a check found.
    pub(super) fn compare(self, report: &mut Report, levels: usize) {
        let Self { topics, folder, consumer_offsets, delay_offsets, findings } = self;
        findings.into_iter().for_each(|finding| report.findings.add(finding));
        let bounds: HashMap<(&str, i32), (i64, i64)> =
            report.queues.iter().map(|queue| ((queue.topic.as_str(), queue.queue_id), (queue.min_offset, queue.max_offset))).collect();
        let mut found = Vec::new();
        if let Some(value) = consumer_offsets {
            let exists = |topic: &str| topics.as_ref().is_none_or(|topics| topics.contains(topic));
            let max = |topic: &str, queue_id| bounds.get(&(topic, queue_id)).map_or(0, |(_, max)| *max);
            compare_consumers(&folder.join(CONSUMER_OFFSETS), &value, &exists, &max, &mut found);
        }
        if let Some(value) = delay_offsets {
            let bounds = |queue_id| bounds.get(&(SCHEDULE_TOPIC, queue_id)).copied().unwrap_or((0, 0));
            compare_levels(&folder.join(DELAY_OFFSETS), &value, levels, &bounds, &mut found);
        }
        found.into_iter().for_each(|finding| report.findings.add(finding));
    }
}

impl Copy {
    fn state(&self) -> &str {
        match self {
            Self::Absent => "missing",
            Self::Blank => "empty",
            Self::Read(_) => "readable",
            Self::Damaged(why) => why,
        }
    }
}

fn topics(value: &Value) -> Option<BTreeSet<String>> {
    let table = value.get("topicConfigTable")?;
    Some(table.members().iter().filter_map(|(name, _)| name.as_text().map(|name| name.into_owned())).collect())
}

/// Groups that stand behind the end of a queue.
fn compare_consumers(path: &Path, value: &Value, exists: &dyn Fn(&str) -> bool, max: &dyn Fn(&str, i32) -> i64, found: &mut Vec<Finding>) {
    for (key, queues) in value.get("offsetTable").map_or(&[][..], Value::members) {
        let key = key.as_text().unwrap_or_default();
        let Some((topic, group)) = key.split_once('@').filter(|(topic, _)| exists(topic)) else { continue };
        for (queue_id, offset) in queues.members() {
            let queue_id = queue_id.as_i64().and_then(|id| i32::try_from(id).ok());
            let (Some(queue_id), Some(offset)) = (queue_id, offset.as_i64()) else {
                let text = format!("a queue or an offset of {topic}@{group} is no number: a broker refuses to start");
                found.push(Finding::new(Kind::MetadataDamaged, Severity::Error, path, text, Remedy::Act("repair the entry")));
                continue;
            };
            let max = max(topic, queue_id);
            if offset > max {
                let text =
                    format!("group {group} has consumed up to {offset}, the queue ends at {max}: it would miss what comes up to there");
                let remedy = Remedy::Act("reset the group's offset, or let its next pull do it");
                found.push(
                    Finding::new(Kind::ConsumerOffset, Severity::Warning, path, text, remedy).queue(topic, queue_id).queue_offset(offset),
                );
            }
        }
    }
}

/// Delay levels that stand outside their queue.
fn compare_levels(path: &Path, value: &Value, levels: usize, bounds: &dyn Fn(i32) -> (i64, i64), found: &mut Vec<Finding>) {
    for (level, offset) in value.get("offsetTable").map_or(&[][..], Value::members) {
        let (Some(level), Some(offset)) = (level.as_i64(), offset.as_i64()) else {
            let text = "a level or an offset is no number: a broker refuses to start";
            found.push(Finding::new(Kind::MetadataDamaged, Severity::Error, path, text, Remedy::Act("repair the entry")));
            continue;
        };
        let Some(queue_id) = level
            .checked_sub(1)
            .and_then(|queue| i32::try_from(queue).ok())
            .filter(|queue| (0..levels as i64).contains(&i64::from(*queue)))
        else {
            continue; // of a level that is no more
        };
        let (min, max) = bounds(queue_id);
        if !(min..=max).contains(&offset) {
            let text = format!("delay level {level} has delivered up to {offset}, its queue goes from {min} to {max}");
            let finding = Finding::new(Kind::DelayOffset, Severity::Warning, path, text, Remedy::Start);
            found.push(finding.queue(SCHEDULE_TOPIC, queue_id).queue_offset(offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::store::check::{Counts, Findings, QueueBounds, Sizes};

    use super::*;

    fn report(root: &Path, queues: &[(&str, i32, i64, i64)]) -> Report {
        let bounds = |(topic, queue_id, min_offset, max_offset): &(&str, i32, i64, i64)| QueueBounds {
            topic: (*topic).to_owned(),
            queue_id: *queue_id,
            min_offset: *min_offset,
            max_offset: *max_offset,
        };
        Report {
            root: root.to_owned(),
            findings: Findings::new(10),
            counts: Counts::default(),
            sizes: Sizes { commit_log: 1, consume_queue: 20, index: (1, 2) },
            queues: queues.iter().map(bounds).collect(),
        }
    }

    /// What is told of a folder with these files.
    fn told(files: &[(&str, &str)], queues: &[(&str, i32, i64, i64)]) -> Vec<(Kind, Severity)> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("config")).unwrap();
        for (name, content) in files {
            std::fs::write(folder.path().join("config").join(name), content).unwrap();
        }
        let mut report = report(folder.path(), queues);
        Metadata::read(folder.path()).compare(&mut report, 18);
        report.findings.groups().map(|(severity, kind, _)| (kind, severity)).collect()
    }

    #[test]
    fn copies_are_judged_as_a_start_would() {
        let (good, bad) = ("{\"topicConfigTable\":{T:{}}}", "{\"topicConfigTable\":{");
        let backup = [(Kind::MetadataBackup, Severity::Warning)];
        let lost = [(Kind::MetadataDamaged, Severity::Error)];
        for (main, copy, expected) in [
            (None, None, &[][..]),
            (Some(good), None, &[]),
            (Some(good), Some(bad), &[]),
            (Some(bad), Some(good), &backup),
            (Some(""), Some(good), &backup),
            (None, Some(good), &backup),
            (Some(bad), None, &lost),
            (Some(bad), Some(bad), &lost),
            (None, Some(bad), &lost),
            (Some("[1]"), None, &lost),
            (Some(" "), None, &[(Kind::MetadataDamaged, Severity::Warning)]),
        ] {
            let files: Vec<(&str, &str)> =
                [("topics.json", main), ("topics.json.bak", copy)].into_iter().filter_map(|(name, text)| Some((name, text?))).collect();
            assert_eq!(told(&files, &[]), expected, "{main:?} {copy:?}");
        }
        assert_eq!(told(&[("consumerFilter.json", bad)], &[]), [(Kind::MetadataDamaged, Severity::Warning)]);
    }

    #[test]
    fn offsets_are_compared_with_queues() {
        let topics = ("topics.json", "{\"topicConfigTable\":{\"T\":{}}}");
        let queues = [("T", 0, 5, 10), (SCHEDULE_TOPIC, 2, 4, 8)];
        let offsets = |text: &'static str| told(&[topics, ("consumerOffset.json", text)], &queues);
        assert_eq!(offsets("{\"offsetTable\":{\"T@g\":{0:10},\"T@h\":{0:0},\"gone@g\":{0:99}}}"), []);
        assert_eq!(offsets("{\"offsetTable\":{\"T@g\":{0:11}}}"), [(Kind::ConsumerOffset, Severity::Warning)]);
        assert_eq!(offsets("{\"offsetTable\":{\"T@g\":{1:1}}}"), [(Kind::ConsumerOffset, Severity::Warning)], "no such queue");
        assert_eq!(offsets("{\"offsetTable\":{\"T@g\":{0:\"x\"}}}"), [(Kind::MetadataDamaged, Severity::Error)]);
        let levels = |text: &'static str| told(&[("delayOffset.json", text)], &queues);
        assert_eq!(levels("{\"offsetTable\":{3:8,1:0,99:7}}"), []);
        for outside in ["{\"offsetTable\":{3:9}}", "{\"offsetTable\":{3:3}}", "{\"offsetTable\":{1:1}}"] {
            assert_eq!(levels(outside), [(Kind::DelayOffset, Severity::Warning)], "{outside}");
        }
        assert_eq!(levels("{\"offsetTable\":{x:1}}"), [(Kind::MetadataDamaged, Severity::Error)]);
    }
}
