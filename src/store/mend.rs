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
    let found = records(log, dispatcher, queue, from..to);
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

fn records<L: LogView>(log: &L, dispatcher: &Dispatcher, queue: &ConsumeQueue, range: std::ops::Range<i64>) -> Records {
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
    found
}
