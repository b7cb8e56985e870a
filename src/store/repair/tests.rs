//! What repair makes of damaged stores: the table is in `check::tests`.

use std::path::Path;

use crate::common::record::Record;
use crate::store::check::tests::{Case, DEADLINE, Stored, Told, cases, checked, config, content, copy, open, settled, stopped, told};
use crate::store::fs::RealFs;

use super::*;

fn repaired_with(root: &Path, options: &RepairOptions) -> Repaired {
    repair(&config(root), &RealFs::shared(), options, &mut |_| {}).unwrap()
}

fn repaired(root: &Path) -> Repaired {
    repaired_with(root, &RepairOptions { apply: true, ..RepairOptions::default() })
}

/// The broker serves all messages but the lost ones, by offset and by key, and the store is clean when it has stopped.
fn serves(root: &Path, stored: &Stored, lost: &[i64], what: &str) {
    let store = open(root);
    settled(&store);
    for (topic, queue_id, appended) in stored {
        let found = store.message_at(topic, *queue_id, appended.queue_offset).and_then(|(_, bytes)| bytes);
        let record = found.as_ref().map(|bytes| Record::parse(bytes).unwrap());
        let there = record.as_ref().is_some_and(|record| record.physical_offset == appended.physical_offset);
        let is_lost = lost.contains(&appended.physical_offset);
        assert_eq!(there, !is_lost, "{what}: {topic} {queue_id} {appended:?}");
        if let Some(record) = record.filter(|_| there) {
            assert_eq!((record.topic, record.queue_id, record.queue_offset), (topic.as_str(), *queue_id, appended.queue_offset), "{what}");
            for key in crate::store::dispatch::Dispatched::read(record.properties).keys().filter(|key| *key != "all") {
                let hits = store.query(topic, key, 64, 0, i64::MAX).records;
                let hit = hits.iter().any(|hit| Record::parse(hit).unwrap().physical_offset == appended.physical_offset);
                assert!(hit, "{what}: {topic} {key} {appended:?}");
            }
        }
    }
    for (topic, queue_id) in [("A", 0), ("B", 1), ("C", 0)] {
        let next = crate::store::check::tests::of_queue(stored, topic, queue_id).len() as i64;
        assert_eq!(store.queue_bounds(topic, queue_id).1, next, "{what}: {topic} {queue_id}: numbering goes on");
    }
    assert!(store.shutdown(DEADLINE).clean);
}

fn repairs(original: &Path, stored: &Stored, case: &Case) {
    let Case { name, damage, told: expected, left } = case;
    let folder = copy(original);
    let lost = damage(folder.path(), stored);
    let before = content(folder.path());
    let dry = repaired_with(folder.path(), &RepairOptions::default());
    assert!(before == content(folder.path()), "{name}: a dry run changed something");
    assert!(!dry.applied && dry.after.is_none());
    let done = repaired(folder.path());
    assert_eq!(done.steps, dry.steps, "{name}: done as said");
    assert_eq!(done.applied, !done.steps.is_empty(), "{name}");
    assert_eq!(expected.iter().any(|told| !left.contains(told)), done.applied, "{name}: {:?}", done.steps);
    clean(folder.path(), left, name);
    assert!(repaired(folder.path()).steps.is_empty(), "{name}: twice");
    serves(folder.path(), stored, &lost, name);
    clean(folder.path(), left, &format!("{name}, after a run"));
}

fn clean(root: &Path, left: &[Told], what: &str) {
    let report = checked(root);
    let texts: Vec<String> = report.findings.shown().map(|finding| format!("{:?} {}", finding.kind, finding.text)).collect();
    assert_eq!(told(&report), left, "{what}: {texts:#?}");
}

#[test]
fn damage_is_repaired_and_everything_else_served() {
    let original = tempfile::tempdir().unwrap();
    let stored = stopped(original.path());
    let failed: Vec<&str> = cases()
        .iter()
        .filter(|case| std::panic::catch_unwind(|| repairs(original.path(), &stored, case)).is_err())
        .map(|case| case.name)
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}
