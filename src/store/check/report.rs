//! What a check finds, and how it is told.
//!
//! - A finding is an error when no stop leaves the like behind, so that something was damaged; a warning when an abrupt stop leaves it and
//!   the next start mends it, or when nobody is harmed; a note when it is good to know.
//! - However much is damaged, a report stays small: of each kind some findings are kept, all are counted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Good to know.
    Note,
    /// What an abrupt stop leaves, and the next start mends; or what does no harm.
    Warning,
    /// Damage: something is lost, wrong, or keeps a broker from starting.
    Error,
}

impl Severity {
    /// As it is printed.
    pub fn text(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What is to be done about a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing.
    Nothing,
    /// The next start of the broker mends it.
    Start,
    /// `petrel store repair` mends it.
    Repair,
    /// Somebody has to: what.
    Act(&'static str),
}

impl Remedy {
    /// As it is printed.
    pub fn text(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Start => "the next start mends it, or petrel store repair",
            Self::Repair => "petrel store repair",
            Self::Act(what) => what,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
        /// Kinds of findings. Their names in JSON are a promise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// Name in JSON.
            pub fn id(self) -> &'static str {
                match self { $(Self::$name => $id,)* }
            }
        }
    };
}

kinds! {
    /// Files have other sizes than the configuration's, which was not given.
    FoundSizes = "foundSizes";
    /// The disk does not give a part of a file.
    Unreadable = "unreadable";
    /// Something is not named as a file of its folder is.
    StrayFile = "strayFile";
    /// The files of the log are not as long as the configuration says.
    LogFileSize = "logFileSize";
    /// A file of the log is shorter than the others.
    LogFileShort = "logFileShort";
    /// A file of the log is longer than the others, or named by a position that no file begins at.
    LogFileOdd = "logFileOdd";
    /// A file of the log has no byte.
    LogFileEmpty = "logFileEmpty";
    /// Files of the log are gone.
    LogFileMissing = "logFileMissing";
    /// There is no log although there is what was derived from it.
    LogMissing = "logMissing";
    /// Bytes that are no records, with records behind them.
    DamagedRecords = "damagedRecords";
    /// Writes that did not arrive as a whole before an abrupt stop, with later ones behind them.
    UnfinishedWrites = "unfinishedWrites";
    /// A closed file does not end with a blank record.
    BlankMissing = "blankMissing";
    /// A blank record does not state what it covers.
    BlankSize = "blankSize";
    /// Bytes behind the last record.
    TornTail = "tornTail";
    /// A file behind the one in which the log ends.
    SurplusFile = "surplusFile";
    /// Less of the log is there than was known to be on disk.
    LogShortened = "logShortened";
    /// Records that hold the place of damaged ones.
    SealedRecords = "sealedRecords";
    /// Two records of a queue have the same queue offset.
    QueueOffsetTwice = "queueOffsetTwice";
    /// Queue offsets without a record, with nothing that explains it.
    QueueOffsetGap = "queueOffsetGap";
    /// A queue offset far behind the one before it.
    QueueOffsetOdd = "queueOffsetOdd";
    /// The record's topic cannot be the name of a folder.
    TopicOdd = "topicOdd";
    /// Records of a topic that does not exist.
    TopicUnknown = "topicUnknown";
    /// A numbering of a queue began again.
    QueueRestarted = "queueRestarted";
    /// A queue that has records has no folder.
    QueueMissing = "queueMissing";
    /// A file of a consume queue has another length or name than it must have.
    QueueFile = "queueFile";
    /// A file in the middle of a consume queue is gone.
    QueueFileMissing = "queueFileMissing";
    /// Records without a unit.
    UnitMissing = "unitMissing";
    /// Units at a wrong queue offset.
    UnitShifted = "unitShifted";
    /// Units that point to something else than their record.
    UnitWrong = "unitWrong";
    /// Units with another tags code than their record.
    UnitTagsCode = "unitTagsCode";
    /// Units without a record.
    UnitBogus = "unitBogus";
    /// Units that point behind the end of the log.
    UnitBehindLog = "unitBehindLog";
    /// Zeros in front of units.
    UnitZero = "unitZero";
    /// Places of records that are lost.
    UnitFiller = "unitFiller";
    /// Units of damaged records.
    UnitOfDamage = "unitOfDamage";
    /// A queue that is not compared with the log.
    QueueSkipped = "queueSkipped";
    /// No key of any record can be found.
    IndexMissing = "indexMissing";
    /// An index file cannot be used.
    IndexFile = "indexFile";
    /// An index file that was set aside.
    IndexSetAside = "indexSetAside";
    /// The header of an index file does not fit its entries.
    IndexHeader = "indexHeader";
    /// A chain of an index file leads astray.
    IndexChain = "indexChain";
    /// Index entries that no record has the key of.
    IndexEntry = "indexEntry";
    /// Records with keys by which they are not found.
    IndexKeyMissing = "indexKeyMissing";
    /// There is no checkpoint.
    CheckpointMissing = "checkpointMissing";
    /// The checkpoint has a length that no broker gives it.
    CheckpointLength = "checkpointLength";
    /// A field of the checkpoint cannot be.
    CheckpointField = "checkpointField";
    /// The last stop was not in order.
    Abort = "abort";
    /// A sync failed in the last run.
    SyncFailed = "syncFailed";
    /// Originals of damaged records, and what repairs replaced.
    Lost = "lost";
    /// Left by a repair that was cut short.
    RepairLeft = "repairLeft";
    /// A metadata file cannot be read, nor can its backup.
    MetadataDamaged = "metadataDamaged";
    /// A metadata file cannot be read, its backup can.
    MetadataBackup = "metadataBackup";
    /// A group has consumed messages that the queue does not have.
    ConsumerOffset = "consumerOffset";
    /// A delay level stands outside its queue.
    DelayOffset = "delayOffset";
    /// Something that the other broker does not know or does not accept.
    Foreign = "foreign";
}

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How bad.
    pub severity: Severity,
    /// In which file or folder.
    pub path: PathBuf,
    /// Position in the file.
    pub position: Option<u64>,
    /// Physical offset.
    pub physical_offset: Option<i64>,
    /// Topic and queue.
    pub queue: Option<(String, i32)>,
    /// First queue offset.
    pub queue_offset: Option<i64>,
    /// How many things of the kind this finding stands for.
    pub count: u64,
    /// What it is in words.
    pub text: String,
    /// What to do.
    pub remedy: Remedy,
}

impl Finding {
    /// A finding of one thing.
    pub fn new(kind: Kind, severity: Severity, path: &Path, text: impl Into<String>, remedy: Remedy) -> Self {
        Self {
            kind,
            severity,
            path: path.to_owned(),
            position: None,
            physical_offset: None,
            queue: None,
            queue_offset: None,
            count: 1,
            text: text.into(),
            remedy,
        }
    }

    /// With a position in the file.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.position = Some(position);
        self
    }

    /// With a physical offset.
    #[must_use]
    pub fn physical(mut self, offset: i64) -> Self {
        self.physical_offset = Some(offset);
        self
    }

    /// With a queue.
    #[must_use]
    pub fn queue(mut self, topic: &str, queue_id: i32) -> Self {
        self.queue = Some((topic.to_owned(), queue_id));
        self
    }

    /// With a queue offset.
    #[must_use]
    pub fn queue_offset(mut self, offset: i64) -> Self {
        self.queue_offset = Some(offset);
        self
    }

    /// For many things.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.count = count;
        self
    }
}

/// Findings of one kind and severity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many things were found.
    pub total: u64,
    /// The first findings.
    pub shown: Vec<Finding>,
    /// Findings that are only counted.
    pub hidden: u64,
}

/// All findings, the worst first.
#[derive(Clone, Debug)]
pub struct Findings {
    groups: BTreeMap<(std::cmp::Reverse<Severity>, Kind), Group>,
    limit: usize,
}

impl Findings {
    /// Keeps `limit` findings of each kind.
    pub fn new(limit: usize) -> Self {
        Self { groups: BTreeMap::new(), limit }
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        let group = self.groups.entry((std::cmp::Reverse(finding.severity), finding.kind)).or_default();
        group.total += finding.count;
        if group.shown.len() < self.limit {
            group.shown.push(finding);
        } else {
            group.hidden += 1;
        }
    }

    /// Takes over what another list has.
    pub(in crate::store) fn absorb(&mut self, other: Self) {
        for (key, group) in other.groups {
            let mine = self.groups.entry(key).or_default();
            mine.total += group.total;
            mine.hidden += group.hidden;
            for finding in group.shown {
                if mine.shown.len() < self.limit {
                    mine.shown.push(finding);
                } else {
                    mine.hidden += 1;
                }
            }
        }
    }

    /// Kinds with what was found of each, the worst first.
    pub fn groups(&self) -> impl Iterator<Item = (Severity, Kind, &Group)> {
        self.groups.iter().map(|((severity, kind), group)| (severity.0, *kind, group))
    }

    /// The findings that were kept.
    pub fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.groups.values().flat_map(|group| &group.shown)
    }

    /// The worst severity; `None` when nothing was found.
    pub fn worst(&self) -> Option<Severity> {
        self.groups.keys().next().map(|(severity, _)| severity.0)
    }

    /// Whether nothing was found but what is good to know.
    pub fn is_clean(&self) -> bool {
        self.worst().is_none_or(|worst| worst == Severity::Note)
    }

    /// Whether something was damaged.
    pub fn is_damaged(&self) -> bool {
        self.worst() == Some(Severity::Error)
    }

    /// How many things of a kind were found, whatever their severity.
    pub fn total(&self, kind: Kind) -> u64 {
        self.groups.iter().filter(|((_, other), _)| *other == kind).map(|(_, group)| group.total).sum()
    }
}

/// What was looked at, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files of the log.
    pub log_files: u64,
    /// Smallest physical offset.
    pub min_physical_offset: i64,
    /// Behind the last record.
    pub max_physical_offset: i64,
    /// Records that count.
    pub records: u64,
    /// Of them, those of long topics, which old Java brokers cannot read.
    pub long_topic_records: u64,
    /// Of them, those that hold the place of damaged ones.
    pub sealed_records: u64,
    /// Consume queues.
    pub queues: u64,
    /// Units compared.
    pub units: u64,
    /// Index files.
    pub index_files: u64,
    /// Index entries compared.
    pub index_entries: u64,
    /// Bytes of files read.
    pub bytes: u64,
    /// Milliseconds it took.
    pub ms: u64,
}

/// Bounds of a queue, for what else speaks of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBounds {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset with a record.
    pub min_offset: i64,
    /// Queue offset of the next record.
    pub max_offset: i64,
}

/// Sizes of a store's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `mappedFileSizeCommitLog`.
    pub commit_log: usize,
    /// `mappedFileSizeConsumeQueue`.
    pub consume_queue: usize,
    /// `maxHashSlotNum` and `maxIndexNum`.
    pub index: (u32, u32),
}

/// What a check found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The store.
    pub root: PathBuf,
    /// Findings.
    pub findings: Findings,
    /// What was looked at.
    pub counts: Counts,
    /// Sizes of the files, given or found.
    pub sizes: Sizes,
    /// Bounds of the queues, by topic and id.
    pub queues: Vec<QueueBounds>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_and_a_part_is_kept() {
        let mut findings = Findings::new(2);
        assert!(findings.is_clean() && findings.worst().is_none());
        for number in 0..5 {
            let path = Path::new("a");
            findings.add(Finding::new(Kind::UnitZero, Severity::Warning, path, "x", Remedy::Start).count(10).at(number));
        }
        findings.add(Finding::new(Kind::Lost, Severity::Note, Path::new("lost"), "x", Remedy::Nothing));
        assert!(!findings.is_clean() && !findings.is_damaged());
        findings.add(Finding::new(Kind::TornTail, Severity::Error, Path::new("b"), "x", Remedy::Repair));
        assert!(findings.is_damaged());
        let order: Vec<_> = findings.groups().map(|(severity, kind, group)| (severity, kind, group.total, group.hidden)).collect();
        assert_eq!(
            order,
            [(Severity::Error, Kind::TornTail, 1, 0), (Severity::Warning, Kind::UnitZero, 50, 3), (Severity::Note, Kind::Lost, 1, 0)]
        );
        assert_eq!((findings.shown().count(), findings.total(Kind::UnitZero), findings.total(Kind::Abort)), (4, 50, 0));
    }
}
