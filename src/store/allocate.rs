//! Reserves the log ahead of the appender: blocks, pages, and the next file.
//!
//! The window follows the write rate (a quarter of a second of it, 1 MiB to 64 MiB), so that an idle broker owns next to
//! nothing and a busy one does not fault. Preparing is never paid by the flusher: under SYNC_FLUSH at low rates pages are made
//! present in small pieces, each written out before it counts (a fresh extent costs a journal commit, once, here); at high
//! rates blocks are only reserved. Under ASYNC_FLUSH blocks are reserved and pages made present, so that an append is a copy.
//! - The appender never waits for this thread: what is not prepared is only slower.
//! - Nothing here changes a byte, so a late preparation cannot hurt what was appended meanwhile.
//! - A full disk is found here, before the appender meets it; nothing is taken from the reserve.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::commit_log::CommitLog;
use super::disk::{DiskGuard, MIN_ROOM, is_no_space};
use super::error::StoreError;
use super::flush::Flusher;
use super::fs::Fs;
use super::mapped_file::{MappedFile, PAGE_SIZE, file_name};
use super::signal::Signal;

/// Smallest window.
const MIN_WINDOW: usize = MIN_ROOM as usize;
/// Largest window.
const MAX_WINDOW: usize = 64 << 20;
/// Window in seconds of writing.
const WINDOW_SECONDS: f64 = 0.25;
/// SYNC_FLUSH: above this rate, in bytes per second, blocks are reserved but not written before use.
const WRITE_AHEAD_RATE: f64 = 64e6;
/// SYNC_FLUSH: most bytes that are dirty ahead of the appender at a time.
const SYNC_PIECE: usize = 256 << 10;
/// ASYNC_FLUSH: most bytes made present between two looks at the appender.
const ASYNC_PIECE: usize = 4 << 20;
/// How often the disk is looked at while appends are refused.
const REFUSED_POLL: Duration = Duration::from_millis(500);

/// The `alloc` thread's shared side.
pub(super) struct Allocator {
    log: Arc<CommitLog>,
    fs: Arc<dyn Fs>,
    guard: Arc<DiskGuard>,
    flusher: Arc<Flusher>,
    next: Mutex<Next>,
    wake_at: AtomicI64,
    signal: Signal,
    stopping: AtomicBool,
}

/// The file behind the appender's. Its lock is held while a file of the log is made: two that make the same one would each have a file of
/// their own, and what goes into the first is gone.
struct Next {
    /// Made ahead.
    file: Option<Arc<MappedFile>>,
    /// Start of the last file that the appender was given; -1 before the first.
    given: i64,
}

/// What the thread remembers between rounds.
struct Progress {
    /// Where and when the appender was last looked at.
    seen: (i64, Instant),
    /// Bytes per second.
    rate: f64,
    /// The appender's file and the one behind it.
    ahead: [Ahead; 2],
    /// The file system can reserve blocks.
    can_reserve: bool,
    /// It writes pages in place and the kernel can make them present.
    can_populate: bool,
}

/// How far a file is prepared.
#[derive(Clone, Copy)]
struct Ahead {
    start: i64,
    /// Position up to which blocks are reserved.
    reserved: usize,
    /// Position up to which nothing is left to do.
    prepared: usize,
}

/// No file.
const NOWHERE: Ahead = Ahead { start: -1, reserved: 0, prepared: 0 };

impl Allocator {
    /// An allocator ahead of `log`'s end; the thread runs [`Allocator::run`].
    pub(super) fn new(log: Arc<CommitLog>, fs: Arc<dyn Fs>, guard: Arc<DiskGuard>, flusher: Arc<Flusher>) -> Arc<Self> {
        Arc::new(Self {
            log,
            fs,
            guard,
            flusher,
            next: Mutex::new(Next { file: None, given: -1 }),
            wake_at: AtomicI64::new(i64::MAX),
            signal: Signal::default(),
            stopping: AtomicBool::new(false),
        })
    }

    /// The file that starts at `start`: the one made ahead, or a new one. Only the appender.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn take(&self, start: i64) -> Result<Arc<MappedFile>, StoreError> {
        let mut next = self.next.lock();
        let file = match next.file.take_if(|next| next.start() == start) {
            Some(file) => file,
            None => self.create(start)?,
        };
        next.given = start;
        Ok(file)
    }

    /// The appender has come to `offset`.
    pub(super) fn appended(&self, offset: i64) {
        if offset >= self.wake_at.load(Ordering::Relaxed) {
            self.signal.wake();
        }
    }

    /// Wakes the thread: appends are refused now.
    pub(super) fn wake(&self) {
        self.signal.wake();
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.signal.wake();
    }

    /// After the thread has ended: removes the file made ahead that was never used.
    pub(super) fn discard(&self) {
        if let Some(next) = self.next.lock().file.take()
            && self.log.files().find(next.start()).is_none() // not one that the appender had made meanwhile
            && let Err(error) = self.fs.remove_file(next.path())
        {
            log::warn!("unused file not removed: path={} error={error}", next.path().display());
        }
    }

    /// Body of the `alloc` thread.
    pub(super) fn run(&self) {
        let now = (self.log.max_offset(), Instant::now());
        let mut progress = Progress { seen: now, rate: 0.0, ahead: [NOWHERE; 2], can_reserve: true, can_populate: true };
        self.guard.check();
        while !self.stopping.load(Ordering::Acquire) {
            if self.guard.refuses() && !self.has_room() {
                self.signal.sleep_unless(Some(REFUSED_POLL), || self.stopping.load(Ordering::Acquire));
                continue;
            }
            if !self.step(&mut progress) {
                let wake_at = self.wake_at.load(Ordering::Acquire);
                let ready = || self.stopping.load(Ordering::Acquire) || self.guard.refuses() || self.log.max_offset() >= wake_at;
                self.signal.sleep_unless(None, ready);
            }
        }
    }

    /// One piece of work ahead of the appender; `false` when there is none.
    fn step(&self, progress: &mut Progress) -> bool {
        let max = self.log.max_offset();
        let window = progress.window(max);
        let Some((file, slot, goal)) = self.file_to_prepare(max, window, progress) else {
            self.wake_at.store(max + (window / 2) as i64, Ordering::Release);
            return false;
        };
        match self.prepare(&file, slot, goal, progress) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => {
                self.guard.no_space(file.path(), &error); // the next round waits for room
            }
            Err(error) => {
                log::warn!("space cannot be reserved ahead, appends go on without: path={} error={error}", file.path().display());
                progress.can_reserve = false;
            }
        }
        true
    }

    /// The file that needs work, which of the two it is, and up to which position: the appender's first, then the next one,
    /// which is made when the appender comes near.
    fn file_to_prepare(&self, max: i64, window: usize, progress: &mut Progress) -> Option<(Arc<MappedFile>, usize, usize)> {
        let size = self.log.files().file_size();
        let ahead = max + window as i64;
        let end = match self.log.files().find(max) {
            Some(current) => {
                progress.enter(&current, (max - current.start()) as usize);
                let goal = (ahead.min(current.end()) - current.start()) as usize;
                if progress.ahead[0].prepared < goal {
                    return Some((current, 0, goal));
                }
                current.end()
            }
            None => max,
        };
        if max + (4 * window).max(size / 16).min(size) as i64 <= end {
            return None;
        }
        let next = self.next_file(end)?;
        if progress.ahead[1].start != end {
            progress.ahead[1] = Ahead { start: end, ..NOWHERE };
        }
        let goal = (ahead.max(end + MIN_WINDOW as i64).min(next.end()) - end) as usize;
        (progress.ahead[1].prepared < goal).then_some((next, 1, goal))
    }

    /// The file behind the appender's; makes it, durably, if need be.
    fn next_file(&self, start: i64) -> Option<Arc<MappedFile>> {
        let made = {
            let mut next = self.next.lock();
            if let Some(next) = next.file.as_ref().filter(|next| next.start() == start) {
                return Some(Arc::clone(next));
            }
            if next.given >= start || self.log.max_offset() > start || self.log.files().find(start).is_some() {
                return None; // the appender was faster and has its own
            }
            self.create(start).inspect(|file| next.file = Some(Arc::clone(file)))
        };
        match made {
            Ok(file) => self.make_durable(&file).then_some(file),
            Err(StoreError::Io(_, path, error)) if is_no_space(&error) => {
                self.guard.no_space(&path, &error);
                None
            }
            Err(error) => {
                log::warn!("next file not made ahead: {error}");
                None
            }
        }
    }

    fn create(&self, start: i64) -> Result<Arc<MappedFile>, StoreError> {
        let size = self.log.files().file_size();
        let path = self.guard.folder_of_new_file(start / size as i64).join(file_name(start));
        MappedFile::create(&*self.fs, &path, start, size).map(Arc::new)
    }

    /// So that the flush thread does not have to. A file of which that fails is not used.
    fn make_durable(&self, file: &Arc<MappedFile>) -> bool {
        let synced = file.file().sync_data().map_err(|error| format!("sync of {} failed: {error}", file.path().display()));
        let folder = file.folder();
        let synced =
            synced.and_then(|()| self.fs.sync_dir(folder).map_err(|error| format!("sync of {} failed: {error}", folder.display())));
        match synced {
            Ok(()) => {
                file.take_new_entry();
                true
            }
            Err(why) if self.next.lock().file.take_if(|next| Arc::ptr_eq(next, file)).is_some() => {
                log::warn!("next file not made ahead: {why}");
                false
            }
            Err(why) => {
                self.flusher.fail(why); // the appender has it already
                false
            }
        }
    }

    /// Reserves and prepares the next piece of `file` before `goal`.
    fn prepare(&self, file: &MappedFile, slot: usize, goal: usize, progress: &mut Progress) -> io::Result<()> {
        let sync = self.log.is_sync_flush();
        let ahead = &mut progress.ahead[slot];
        if !progress.can_reserve {
            self.guard.check();
            ahead.prepared = goal;
            return Ok(());
        }
        if ahead.reserved < goal {
            let room = usize::try_from(self.guard.room()).unwrap_or(usize::MAX);
            let wanted = goal - ahead.reserved;
            if room < wanted.min(MIN_WINDOW) {
                self.guard.no_room(); // the next round waits for more
                return Ok(());
            }
            let end = ahead.reserved + wanted.min(room / PAGE_SIZE * PAGE_SIZE);
            ahead.reserved = reserve(file, ahead.reserved..end)?;
            self.guard.check();
        }
        if !progress.can_populate || sync && progress.rate > WRITE_AHEAD_RATE {
            ahead.prepared = ahead.reserved;
            return Ok(());
        }
        let end = ahead.reserved.min(ahead.prepared + if sync { SYNC_PIECE } else { ASYNC_PIECE });
        let piece = ahead.prepared..end;
        ahead.prepared = end;
        if !file.populate(piece.clone()) {
            progress.can_populate = false;
        } else if !sync {
            file.set_mappable(end);
        } else if let Err(error) = file.file().write_back(piece.start as u64, piece.len() as u64) {
            self.flusher.fail(format!("write-back of {} failed: {error}", file.path().display()));
        }
        Ok(())
    }

    /// While appends are refused: whether there is room again, which ends the refusal.
    fn has_room(&self) -> bool {
        if !self.guard.check() || self.guard.room() < MIN_ROOM {
            return false;
        }
        let max = self.log.max_offset();
        let given = match self.log.files().find(max) {
            Some(file) => {
                let from = (max - file.start()) as usize / PAGE_SIZE * PAGE_SIZE;
                file.allocate(from..file.size().min(from + MIN_WINDOW))
            }
            None => match self.next_file(max) {
                Some(file) => file.allocate(0..file.size().min(MIN_WINDOW)),
                None => return false,
            },
        };
        match given {
            Err(error) if is_no_space(&error) => false,
            _ => {
                self.guard.accept();
                true
            }
        }
    }
}

impl Progress {
    /// Bytes to keep prepared ahead of the appender, which is at `max` now.
    fn window(&mut self, max: i64) -> usize {
        let elapsed = self.seen.1.elapsed().as_secs_f64();
        if elapsed >= 0.02 {
            let rate = (max - self.seen.0) as f64 / elapsed;
            let weight = (elapsed / WINDOW_SECONDS).min(1.0);
            self.rate += (rate - self.rate) * weight;
            self.seen = (max, Instant::now());
        }
        ((self.rate * WINDOW_SECONDS) as usize).clamp(MIN_WINDOW, MAX_WINDOW).next_multiple_of(PAGE_SIZE)
    }

    /// Turns to the appender's file, which is at `position`; what lies before it needs no preparation.
    fn enter(&mut self, file: &MappedFile, position: usize) {
        if self.ahead[0].start != file.start() {
            let was_next = self.ahead[1].start == file.start();
            self.ahead = [if was_next { self.ahead[1] } else { Ahead { start: file.start(), ..NOWHERE } }, NOWHERE];
        }
        let page = position / PAGE_SIZE * PAGE_SIZE;
        let current = &mut self.ahead[0];
        current.reserved = current.reserved.max(page);
        current.prepared = current.prepared.max(page);
    }
}

/// Reserves a range, or on a nearly full disk at least the least; returns up to where.
fn reserve(file: &MappedFile, range: Range<usize>) -> io::Result<usize> {
    match file.allocate(range.clone()) {
        Ok(()) => Ok(range.end),
        Err(error) if is_no_space(&error) && range.len() > MIN_WINDOW => {
            let end = range.start + MIN_WINDOW;
            file.allocate(range.start..end).map(|()| end)
        }
        Err(error) => Err(error),
    }
}
