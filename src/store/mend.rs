//! Units of a consume queue that turn out to be damaged when they are read: they are made anew from the log.
//!
//! Nothing in a unit tells that a bit of it has changed, but the record it points at does. A record lies between those of its
//! neighbours in the queue, so the log is searched there, from the next sound unit in front to the next sound one behind.
//! - A unit that stands where it belongs is never moved. Where the log has no record for a place, a seal that lies there stands for it,
//!   or a filler.
//! - In a queue whose places differ from the offsets in its records (a Java broker may leave that), places count.

use crate::common::record::{Record, RecordError};

use super::consume_queue::{ConsumeQueue, CqUnit};
use super::dispatch::{Dispatcher, behind_damage, has_unit};
use super::error::StoreError;
use super::reading::LogView;
use super::seal::is_seal;

/// What a unit points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A record of this queue, with this queue offset.
    Message(i64),
    /// A record that no consumer gets: a seal.
    NoMessage,
    /// No whole record of this queue.
    Nothing,
}

/// What the record in `bytes`, of the length and at the place that a unit says, is to a queue.
pub(super) fn target(bytes: &[u8], unit: &CqUnit, queue: &ConsumeQueue) -> Target {
    match Record::parse(bytes) {
        Ok(record) if record.total_size != bytes.len() || record.physical_offset != unit.physical_offset => Target::Nothing,
        Ok(record) if !has_unit(record.sys_flag) => Target::NoMessage,
        Ok(record) if record.topic == queue.topic() && record.queue_id == queue.queue_id() => Target::Message(record.queue_offset),
        _ => Target::Nothing,
    }
}

/// What the unit at an offset points at; `None` without a unit.
fn target_at<L: LogView>(log: &L, queue: &ConsumeQueue, offset: i64) -> Option<Target> {
    let unit = queue.unit_at(offset).ok().flatten()?;
    let bytes = if unit.is_present() { log.slice(unit.physical_offset, unit.size as usize) } else { None };
    Some(bytes.map_or(Target::Nothing, |bytes| target(&bytes, &unit, queue)))
}

/// Whether a unit that points at a message with another queue offset than its own can be right: one of its neighbours is off by as
/// much, or there is none to ask.
pub(super) fn is_shifted<L: LogView>(log: &L, queue: &ConsumeQueue, offset: i64, queue_offset: i64) -> bool {
    let neighbours = [offset - 1, offset + 1].map(|neighbour| match target_at(log, queue, neighbour) {
        Some(Target::Message(of_neighbour)) => Some(of_neighbour - neighbour),
        _ => None,
    });
    neighbours == [None, None] || neighbours.contains(&Some(queue_offset - offset))
}

/// Makes the unit at an offset anew, and the damaged ones around it.
///
/// # Errors
/// The system's.
pub(super) fn mend<L: LogView>(log: &L, dispatcher: &Dispatcher, queue: &ConsumeQueue, offset: i64) -> Result<(), StoreError> {
    let (first, from) = sound_before(log, queue, offset)?;
    let (end, to) = sound_behind(log, queue, offset)?;
    let found = records(log, dispatcher, queue, from..to)?;
    let mut mended = 0;
    for place in first..end {
        let Some(there) = queue.unit_at(place)? else { break };
        let unit = found.unit_for(place, first..end).unwrap_or(if there == CqUnit::FILLER { there } else { found.instead });
        if unit != there {
            queue.replace(place, unit)?;
            mended += 1;
        } else if place == offset {
            queue.leave_damage(offset);
        }
    }
    log::warn!(
        "damaged units of a consume queue made anew from the log: topic={} queueId={} queueOffset={offset} from={first} to={end} units={mended} \
         records={}",
        queue.topic(),
        queue.queue_id(),
        found.units.len()
    );
    Ok(())
}

/// The place behind the next sound unit in front of an offset, and where that one's record ends.
fn sound_before<L: LogView>(log: &L, queue: &ConsumeQueue, offset: i64) -> Result<(i64, i64), StoreError> {
    let mut place = offset;
    while place > queue.min_offset() {
        if let (Some(Target::Message(_)), Some(unit)) = (target_at(log, queue, place - 1), queue.unit_at(place - 1)?) {
            return Ok((place, unit.end()));
        }
        place -= 1;
    }
    Ok((place, log.min_offset()))
}

/// The place of the next sound unit behind an offset, and where its record begins.
fn sound_behind<L: LogView>(log: &L, queue: &ConsumeQueue, offset: i64) -> Result<(i64, i64), StoreError> {
    let mut place = offset + 1;
    while place < queue.max_offset() {
        if let (Some(Target::Message(_)), Some(unit)) = (target_at(log, queue, place), queue.unit_at(place)?) {
            return Ok((place, unit.physical_offset));
        }
        place += 1;
    }
    Ok((place, log.visible_offset()))
}

/// What the log has for a queue somewhere.
struct Records {
    /// Queue offsets and units, in the order of the log.
    units: Vec<(i64, CqUnit)>,
    /// Stands where there is no record.
    instead: CqUnit,
}

impl Records {
    fn unit_for(&self, place: i64, places: std::ops::Range<i64>) -> Option<CqUnit> {
        if let Some((_, unit)) = self.units.iter().find(|(queue_offset, _)| *queue_offset == place) {
            return Some(*unit);
        }
        let in_order = self.units.len() as i64 == places.end - places.start
            && self.units.iter().all(|(queue_offset, _)| !places.contains(queue_offset));
        in_order.then(|| self.units[(place - places.start) as usize].1)
    }
}

fn records<L: LogView>(log: &L, dispatcher: &Dispatcher, queue: &ConsumeQueue, range: std::ops::Range<i64>) -> Result<Records, StoreError> {
    let unreadable = |at: i64| StoreError::Damaged("commitlog".into(), format!("cannot be read at physicalOffset={at}"));
    let mut found = Records { units: Vec::new(), instead: CqUnit::FILLER };
    let mut at = range.start;
    while at < range.end {
        let Some(bytes) = log.slice_to_end(at) else {
            at = log.next_file_start(at);
            continue;
        };
        let start = at;
        while at < range.end {
            let rest = &bytes[(at - start) as usize..];
            if !log.can_read_record(at, rest) {
                return Err(unreadable(at));
            }
            match Record::parse(rest) {
                Ok(record) => {
                    if is_seal(&record) {
                        found.instead = CqUnit { tags_code: 0, ..dispatcher.unit_of(&record, at) };
                    } else if has_unit(record.sys_flag) && record.topic == queue.topic() && record.queue_id == queue.queue_id() {
                        found.units.push((record.queue_offset, dispatcher.unit_of(&record, at)));
                    }
                    at += record.total_size as i64;
                }
                Err(RecordError::Blank) => break,
                Err(_) if !log.can_read(at, rest.len()) => return Err(unreadable(at)),
                Err(_) => match behind_damage(rest, at) {
                    Some(len) => at += len as i64,
                    None => break,
                },
            }
            if at - start >= bytes.len() as i64 {
                break;
            }
        }
        at = if at - start >= bytes.len() as i64 && at < log.next_file_start(start) { at } else { log.next_file_start(start) };
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tempfile::TempDir;

    use super::*;
    use crate::store::RealFs;
    use crate::store::config::StoreConfig;
    use crate::store::consume_queue_table::ConsumeQueueTable;
    use crate::store::testing::{VecLog, deleted, draft};

    struct Store {
        _folder: TempDir,
        log: VecLog,
        queues: Arc<ConsumeQueueTable>,
        dispatcher: Dispatcher,
        units: Vec<CqUnit>,
    }

    impl Store {
        /// Queue 0 of T, whose records have numbers that differ from their places by `shift`, among records of others.
        fn new(count: usize, shift: i64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let config = StoreConfig { consume_queue_file_size: 400, ..StoreConfig::new(folder.path()) };
            let queues = Arc::new(ConsumeQueueTable::load(&config, RealFs::shared()).unwrap());
            let dispatcher = Dispatcher::new(Arc::clone(&queues), None, deleted(folder.path()), vec![1_000]);
            let (log, mut units) = (VecLog::new(4096), Vec::new());
            let queue = queues.get_or_create("T", 0);
            for place in 0..count as i64 {
                log.append(&draft("U", 0, "", b"other"), place, 1);
                let tags = format!("TAGS\u{1}t{}\u{2}", place % 3);
                let (physical_offset, size) = log.append(&draft("T", 0, &tags, &vec![7; place as usize % 50]), place + shift, 1);
                let tags_code = crate::common::hash::tags_code(Some(&format!("t{}", place % 3)));
                units.push(CqUnit { physical_offset, size, tags_code });
                queue.put(place, units[place as usize]).unwrap();
            }
            queues.flush(false).unwrap();
            Self { _folder: folder, log, queues, dispatcher, units }
        }

        fn queue(&self) -> Arc<ConsumeQueue> {
            self.queues.get("T", 0).unwrap()
        }

        fn all(&self) -> Vec<CqUnit> {
            let mut units = Vec::new();
            self.queue().read(0, 1_000, &mut units).unwrap();
            units
        }
    }

    #[test]
    fn damaged_units_come_back_wherever_they_are() {
        for shift in [0, 2, -1] {
            let store = Store::new(100, shift);
            let mut random = fastrand::Rng::with_seed(shift.unsigned_abs());
            for round in 0..60 {
                let (from, count) = (random.usize(0..100), random.usize(1..if shift == 0 { 30 } else { 2 }));
                let damaged: Vec<i64> = (from..(from + count).min(100)).map(|place| place as i64).collect();
                for place in &damaged {
                    let unit = match random.u32(0..4) {
                        0 => CqUnit { physical_offset: 0, size: 0, tags_code: 0 },
                        1 => CqUnit { physical_offset: random.i64(0..20_000) * 1_000 + 1, ..store.units[*place as usize] },
                        2 => CqUnit { size: random.i32(200..300), ..store.units[*place as usize] },
                        _ => CqUnit { physical_offset: random.i64(..), size: random.i32(..), tags_code: random.i64(..) },
                    };
                    store.queue().replace(*place, unit).unwrap();
                }
                let asked = damaged[random.usize(0..damaged.len())];
                mend(&store.log, &store.dispatcher, &store.queue(), asked).unwrap();
                assert!(store.all() == store.units, "shift {shift} round {round}: {damaged:?} asked for {asked}");
            }
        }
    }

    #[test]
    fn a_shifted_queue_is_left_alone() {
        let store = Store::new(50, 3);
        for place in 0..50 {
            assert!(is_shifted(&store.log, &store.queue(), place, place + 3), "{place}");
            assert!(!is_shifted(&store.log, &store.queue(), place, place + 2), "{place}");
        }
        let straight = Store::new(50, 0);
        assert!(!is_shifted(&straight.log, &straight.queue(), 20, 23));
        let single = Store::new(1, 3);
        assert!(is_shifted(&single.log, &single.queue(), 0, 3), "nobody says otherwise");
    }

    #[test]
    fn a_place_without_a_record_gets_a_filler_and_is_not_looked_for_again() {
        let store = Store::new(10, 0);
        let queue = store.queue();
        let (at, _) = store.log.append(&draft("V", 0, "", b"not of this queue"), 0, 1);
        queue.put_behind(CqUnit::FILLER, 10, CqUnit { physical_offset: at, size: 91, tags_code: 0 }).unwrap();
        assert!(queue.report_damage(10) && queue.report_damage(10));
        assert_eq!(store.queues.take_damage().len(), 1, "once");
        mend(&store.log, &store.dispatcher, &queue, 10).unwrap();
        assert_eq!(queue.unit_at(10).unwrap(), Some(CqUnit::FILLER));
        mend(&store.log, &store.dispatcher, &queue, 10).unwrap();
        assert!(!queue.report_damage(10) && store.queues.take_damage().is_empty());
    }
}
