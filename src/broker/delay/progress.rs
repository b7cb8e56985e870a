//! How far each delay level has been delivered: `delayOffset.json`.
//!
//! - A level's offset is the queue offset of the next message to deliver.
//! - The file never runs ahead of the log's disk: an offset is written only once the records it stands for are durable, so that a crash
//!   may deliver a message twice but never loses one.

use std::collections::VecDeque;

use crate::common::topic::DataVersion;
use crate::remoting::fastjson;

/// Progress of one level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Level {
    /// Next to deliver.
    next: i64,
    /// Next to deliver after a crash.
    durable: i64,
    /// Deliveries that may not be durable yet: (next offset behind them, end of their records), in order.
    waiting: VecDeque<(i64, i64)>,
}

/// Progress of all levels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    levels: Vec<Level>,
    version: DataVersion,
    /// Some durable offset moved since the file's content was last made.
    changed: bool,
}

impl Progress {
    /// No progress on `levels` levels.
    pub(super) fn new(levels: usize) -> Self {
        Self { levels: vec![Level::default(); levels], version: DataVersion::default(), changed: false }
    }

    /// Reads the file of either broker; levels that are no more are ignored.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(super) fn from_json(text: &str, levels: usize) -> Result<Self, String> {
        let value = fastjson::parse(text.as_bytes())?;
        let mut progress = Self::new(levels);
        let table = value.get("offsetTable").ok_or("offsetTable is missing")?;
        for (key, offset) in table.members() {
            let level = key.as_i64().ok_or("a key of offsetTable is no number")?;
            let offset = offset.as_i64().ok_or_else(|| format!("the offset of level {level} is no number"))?;
            let slot = level.checked_sub(1).and_then(|index| usize::try_from(index).ok()).and_then(|index| progress.levels.get_mut(index));
            if let Some(slot) = slot {
                (slot.next, slot.durable) = (offset, offset);
            }
        }
        if let Some(version) = value.get("dataVersion") {
            let number = |name: &str| version.get(name).and_then(fastjson::Value::as_i64).unwrap_or(0);
            progress.version =
                DataVersion { state_version: number("stateVersion"), counter: number("counter"), timestamp: number("timestamp") };
        }
        Ok(progress)
    }

    /// Number of levels.
    pub(super) fn len(&self) -> usize {
        self.levels.len()
    }

    /// Next queue offset to deliver on the level at `index` (level - 1).
    pub(super) fn next(&self, index: usize) -> i64 {
        self.levels[index].next
    }

    /// Sets a level's offset at the start or after messages were lost: nothing in between will be delivered.
    pub(super) fn set(&mut self, index: usize, offset: i64) {
        self.levels[index] = Level { next: offset, durable: offset, waiting: VecDeque::new() };
        self.changed = true;
    }

    /// Everything before `next` was delivered; the records of it end at `end`.
    pub(super) fn delivered(&mut self, index: usize, next: i64, end: i64) {
        let level = &mut self.levels[index];
        level.next = next;
        level.waiting.push_back((next, end));
    }

    /// The log is on disk up to `flushed`.
    pub(super) fn flushed(&mut self, flushed: i64) {
        for level in &mut self.levels {
            while let Some((next, _)) = level.waiting.front().copied().filter(|(_, end)| *end <= flushed) {
                level.durable = next;
                level.waiting.pop_front();
                self.changed = true;
            }
        }
    }

    /// Whether the file lacks a delivery, durable or not yet.
    pub(super) fn is_unwritten(&self) -> bool {
        self.changed || self.levels.iter().any(|level| !level.waiting.is_empty())
    }

    /// Whether writing the file now would change it.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// The file's content, taken for writing.
    pub(super) fn take_json(&mut self) -> String {
        self.changed = false;
        self.to_json()
    }

    /// Counts a change of the file.
    pub(super) fn next_version(&mut self, now_ms: i64) {
        self.version.next(now_ms);
    }

    /// The file's content: levels without progress are left out.
    pub(super) fn to_json(&self) -> String {
        let offsets = self.levels.iter().enumerate().filter(|(_, level)| level.durable > 0);
        let table: Vec<String> = offsets.map(|(index, level)| format!("\n\t\t{}:{}", index + 1, level.durable)).collect();
        let DataVersion { state_version, counter, timestamp } = self.version;
        format!(
            "{{\n\t\"dataVersion\":{{\n\t\t\"counter\":{counter},\n\t\t\"stateVersion\":{state_version},\n\t\t\"timestamp\":{timestamp}\n\t}},\n\
             \t\"offsetTable\":{{{}\n\t}}\n}}",
            table.join(",")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_never_runs_ahead_of_the_disk() {
        let mut progress = Progress::new(3);
        progress.delivered(1, 5, 1_000);
        progress.delivered(1, 9, 2_000);
        assert_eq!((progress.next(1), progress.levels[1].durable), (9, 0));
        progress.flushed(999);
        assert!(progress.is_unwritten() && !progress.is_changed());
        progress.flushed(1_500);
        assert_eq!((progress.levels[1].durable, progress.is_changed()), (5, true));
        assert!(progress.take_json().contains("2:5"));
        assert!(progress.is_unwritten() && !progress.is_changed());
        progress.flushed(2_000);
        assert!(progress.take_json().contains("2:9") && !progress.is_unwritten());
    }

    #[test]
    fn the_file_comes_back() {
        let mut progress = Progress::new(18);
        progress.set(2, 42);
        progress.set(17, 7);
        progress.next_version(5);
        let again = Progress::from_json(&progress.take_json(), 18).unwrap();
        assert_eq!(again, progress);
        let java = "{\"dataVersion\":{\"counter\":3,\"stateVersion\":0,\"timestamp\":9},\"offsetTable\":{1:100,2:20,99:1}}";
        let read = Progress::from_json(java, 18).unwrap();
        assert_eq!((read.next(0), read.next(1), read.version.counter), (100, 20, 3));
        assert_eq!(Progress::from_json("{\"offsetTable\":{\"4\":8}}", 18).unwrap().next(3), 8, "old files lack dataVersion");
        for bad in ["", "{", "[]", "{\"offsetTable\":{\"x\":1}}", "{\"offsetTable\":{1:\"y\"}}"] {
            assert!(Progress::from_json(bad, 18).is_err(), "{bad}");
        }
    }
}
