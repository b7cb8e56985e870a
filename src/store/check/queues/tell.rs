//! What was found of queues, in words.

use crate::store::check::report::{Finding, Findings, Kind, Remedy, Severity};

use super::{Queue, QueueCheck, Run, UNIT, Wrong};

impl QueueCheck<'_> {
    pub(super) fn tell(&self, place: usize, findings: &mut Findings) {
        let queue = &self.queues[place];
        if self.is_unknown(queue) {
            return;
        }
        if !queue.has_folder && queue.records > 0 {
            let (offset, time) = queue.runs.first().map_or((queue.live_from, 0), |run| (run.physical_offset, run.store_timestamp));
            let (severity, remedy) = self.mended(self.next_start.dispatches(offset, time));
            let text = format!("no folder for the {} records of the queue: consumers get none of them", queue.records);
            let folder = self.root.join(&*queue.topic).join(queue.queue_id.to_string());
            let finding = Finding::new(Kind::QueueMissing, severity, &folder, text, remedy).queue(&queue.topic, queue.queue_id);
            findings.add(finding.physical(offset).count(queue.records));
            return;
        }
        for run in &queue.runs {
            self.tell_run(queue, run, findings);
        }
        if queue.uncounted > 0 {
            let text = "more of the same, and of other kinds, in this queue".to_owned();
            let folder = self.root.join(&*queue.topic).join(queue.queue_id.to_string());
            let finding = Finding::new(Kind::UnitWrong, Severity::Error, &folder, text, Remedy::Repair);
            findings.add(finding.queue(&queue.topic, queue.queue_id).count(queue.uncounted));
        }
    }

    fn tell_run(&self, queue: &Queue, run: &Run, findings: &mut Findings) {
        let Run { what, from, to, count, physical_offset, store_timestamp } = *run;
        let units = if count == 1 { format!("unit {from}") } else { format!("units {from} to {}", to - 1) };
        let repair = (Severity::Error, Remedy::Repair);
        let note = (Severity::Note, Remedy::Nothing);
        let is_tail = to == queue.next && queue.tail_end <= to;
        let damaged_header = Remedy::Act("the record's own queue offset is damaged: its body can be read at this physical offset");
        let (kind, text, (severity, remedy)) = match what {
            Wrong::Missing => {
                let mended = is_tail && self.next_start.dispatches(physical_offset, store_timestamp);
                (Kind::UnitMissing, format!("no {units}, but records for it"), self.mended(mended))
            }
            Wrong::Shifted(by) => (Kind::UnitShifted, format!("{units}: their records' units lie {by:+} beside"), repair),
            Wrong::Elsewhere => (Kind::UnitWrong, format!("{units} does not point to the record of this queue offset"), repair),
            Wrong::Tags => (Kind::UnitTagsCode, format!("{units} has not the tags code of its record"), repair),
            Wrong::Bogus => (Kind::UnitBogus, format!("{units} points to what is no record of the queue"), repair),
            Wrong::BehindLog => {
                (Kind::UnitBehindLog, format!("{units} points behind the end of the log"), (Severity::Warning, Remedy::Start))
            }
            Wrong::Zero => {
                let half_written = if self.next_start.live { (Severity::Warning, Remedy::Nothing) } else { repair };
                (Kind::UnitZero, format!("from unit {from} on: bytes that are no unit, with something behind them"), half_written)
            }
            Wrong::Filler => (Kind::UnitFiller, format!("{units} holds the place of a record that is lost"), note),
            Wrong::OfDamage => (Kind::UnitOfDamage, format!("{units} points to a damaged record"), note),
            Wrong::Twice => {
                (Kind::QueueOffsetTwice, format!("queue offset {from} had been given before"), (Severity::Error, damaged_header))
            }
            Wrong::Odd => (Kind::QueueOffsetOdd, format!("queue offset {from} cannot be"), (Severity::Error, damaged_header)),
            Wrong::Gap => {
                let remedy = Remedy::Act("nothing, if records were removed on purpose");
                (Kind::QueueOffsetGap, format!("queue offsets {from} to {} have no record in the log", to - 1), (Severity::Warning, remedy))
            }
        };
        let byte = from.clamp(0, i64::MAX / UNIT) * UNIT;
        let start = byte - byte % self.file_size as i64;
        let mut finding = Finding::new(kind, severity, &queue.path(&self.root, start), text, remedy)
            .queue(&queue.topic, queue.queue_id)
            .queue_offset(from)
            .count(count);
        finding = match what {
            Wrong::Twice | Wrong::Odd | Wrong::Gap => self.log.locate(finding, physical_offset),
            _ if physical_offset >= 0 => finding.at((byte - start) as u64).physical(physical_offset),
            _ => finding.at((byte - start) as u64),
        };
        findings.add(finding);
    }

    pub(super) fn tell_of_all(&self, findings: &mut Findings) {
        let unknown: Vec<&Queue> = self.queues.iter().filter(|queue| self.is_unknown(queue)).collect();
        if let Some(first) = unknown.first() {
            let records = unknown.iter().map(|queue| queue.records).sum::<u64>();
            let text = format!("{records} records of queues without topic, such as {}: deleted topics, most likely", first.topic);
            findings.add(Finding::new(Kind::TopicUnknown, Severity::Note, &self.root, text, Remedy::Nothing).count(unknown.len() as u64));
        }
        for queue in self.queues.iter().filter(|queue| queue.restarts > 0) {
            let text = "the numbering of the queue began again: its topic was deleted and made anew, most likely";
            let finding = Finding::new(Kind::QueueRestarted, Severity::Note, &self.root, text, Remedy::Nothing);
            findings.add(self.log.locate(finding.queue(&queue.topic, queue.queue_id), queue.live_from));
        }
        let skipped = self.queues.iter().filter(|queue| queue.skipped);
        for queue in skipped {
            let text = "queues of this kind are not compared with the log";
            let finding = Finding::new(Kind::QueueSkipped, Severity::Note, &self.root, text, Remedy::Nothing);
            findings.add(finding.queue(&queue.topic, queue.queue_id));
        }
        if self.odd_topics > 0 {
            let text = "records whose topic cannot be the name of a folder: nobody consumes them";
            findings.add(Finding::new(Kind::TopicOdd, Severity::Warning, &self.root, text, Remedy::Nothing).count(self.odd_topics));
        }
    }

    fn mended(&self, by_start: bool) -> (Severity, Remedy) {
        if by_start { (Severity::Warning, Remedy::Start) } else { (Severity::Error, Remedy::Repair) }
    }
}
