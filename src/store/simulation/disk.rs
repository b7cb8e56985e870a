//! A disk that forgets what was not synced, and calls that fail: real files in a folder (they are mapped), and beside them what
//! would be left of each.
//!
//! - A file's durable image is what it held at its last `sync_data`; stores through a map are seen when the image is compared
//!   with the file. A name (created, removed, renamed) is durable once its folder was synced.
//! - A power cut makes of every differing 512-byte sector, every length and every name the old or the new one, each for itself,
//!   as a generator says; a rename happens as a whole or not at all.
//! - After a failed `sync_data` the sectors that were dirty count as clean: a later one does not save them unless they are
//!   written again.
//! - A process that was killed fails in every call from then on; what it had written is there for the next one.
//!
//! Every call holds the disk's one lock, so a kill or a cut falls between two calls.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::store::fs::{Fs, FsFile, RealFs, Space};

/// What arrives as a whole or not at all.
const SECTOR: usize = 512;

/// Syncs are not held for longer.
const LONGEST_HOLD: Duration = Duration::from_secs(1);

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Open,
    CreateDir,
    SyncDir,
    Remove,
    Rename,
    List,
    Read,
    Write,
    Sync,
    Allocate,
    SetLen,
}

/// All kinds that can be made to fail.
pub(crate) const CALLS: [Call; 11] = [
    Call::Open,
    Call::CreateDir,
    Call::SyncDir,
    Call::Remove,
    Call::Rename,
    Call::List,
    Call::Read,
    Call::Write,
    Call::Sync,
    Call::Allocate,
    Call::SetLen,
];

/// The n-th call of a kind from now on fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) call: Call,
    pub(crate) nth: u32,
    pub(crate) no_space: bool,
}

/// Which of the changes that were not synced a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Nothing,
    Everything,
    /// Each for itself.
    Random,
    /// The first sectors of every file.
    Prefix,
    /// The last sectors of every file.
    Suffix,
    /// All but one sector of every file.
    AllButOne,
    /// Another of the above for every file.
    Mixed,
}

/// All of them.
pub(crate) const ARRIVALS: [Arrival; 7] =
    [Arrival::Nothing, Arrival::Everything, Arrival::Random, Arrival::Prefix, Arrival::Suffix, Arrival::AllButOne, Arrival::Mixed];

/// A file's number; names come and go.
type FileId = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Folder,
    File(FileId),
}

/// What the disk holds of a file.
#[derive(Debug, Default)]
struct Image {
    bytes: Vec<u8>,
    /// Sectors that count as clean although they never arrived.
    forgotten: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls of other processes fail.
    process: u64,
    names: BTreeMap<PathBuf, Entry>,
    durable_names: BTreeMap<PathBuf, Entry>,
    renames: Vec<(PathBuf, PathBuf)>,
    images: BTreeMap<FileId, Image>,
    /// Last content of files whose name went.
    nameless: BTreeMap<FileId, Vec<u8>>,
    next_id: FileId,
    faults: Vec<Fault>,
    fired: Vec<Fault>,
    /// The process dies at this changing call from now on.
    dies_in: Option<u32>,
    died: bool,
    /// Syncs of files below this folder wait, but those of this thread.
    held: Option<(PathBuf, std::thread::ThreadId)>,
}

/// The disk: outlives the processes that use it.
#[derive(Debug)]
pub(crate) struct Disk {
    root: PathBuf,
    state: Mutex<State>,
    released: Condvar,
}

impl Disk {
    /// A disk whose files lie in `root`; what is there is durable.
    pub(crate) fn new(root: &Path) -> Arc<Self> {
        let mut state = State::default();
        adopt(root, &mut state);
        state.durable_names = state.names.clone();
        Arc::new(Self { root: root.to_owned(), state: Mutex::new(state), released: Condvar::new() })
    }

    /// The file system of a new process; the process before it is dead.
    pub(crate) fn process(self: &Arc<Self>) -> Arc<dyn Fs> {
        self.kill();
        let mut state = self.state.lock();
        state.died = false;
        Arc::new(SimFs { process: state.process, disk: Arc::clone(self) })
    }

    /// From now on every call of the process fails.
    pub(crate) fn kill(&self) {
        let mut state = self.state.lock();
        state.process += 1;
        (state.dies_in, state.held) = (None, None);
        state.faults.clear();
        self.released.notify_all();
    }

    /// The process dies at its n-th changing call from now on.
    pub(crate) fn kill_at(&self, nth: u32) {
        self.state.lock().dies_in = Some(nth);
    }

    /// Whether the last process died in one of its calls. It will not do so any more.
    pub(crate) fn has_died(&self) -> bool {
        let mut state = self.state.lock();
        state.dies_in = None;
        state.died
    }

    /// Makes a call fail.
    pub(crate) fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(fault);
    }

    /// Takes back what was injected; returns what has happened.
    pub(crate) fn heal(&self) -> Vec<Fault> {
        let mut state = self.state.lock();
        state.faults.clear();
        std::mem::take(&mut state.fired)
    }

    /// Syncs of files below `folder` by other threads wait until [`Disk::release_syncs`], or fail when the process is killed. They do not wait
    /// for ever: the one who would release them may need what is held.
    pub(crate) fn hold_syncs(&self, folder: &Path) {
        self.state.lock().held = Some((folder.to_owned(), std::thread::current().id()));
    }

    /// Syncs go on.
    pub(crate) fn release_syncs(&self) {
        self.state.lock().held = None;
        self.released.notify_all();
    }

    /// The power fails: the process is dead (nobody may have its files mapped any more), the folder becomes what the disk holds.
    pub(crate) fn cut(&self, rng: &mut Rng, arrival: Arrival) {
        self.kill();
        let chance = Chance { seed: rng.u64(..), root: self.root.clone() };
        let mut state = self.state.lock();
        let names = surviving_names(&state, &chance, arrival);
        let mut contents = BTreeMap::new();
        for (path, entry) in &names {
            if let Entry::File(id) = entry {
                let rng = &mut chance.of(path, "content");
                let now = match state.names.get(path) {
                    Some(there) if there == entry => std::fs::read(path).unwrap(),
                    _ => current_content(&state, *id),
                };
                let arrival = arrival.of_file(rng);
                contents.insert(path.clone(), surviving_bytes(&state.images[id], now, rng, arrival));
            }
        }
        for entry in std::fs::read_dir(&self.root).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { std::fs::remove_dir_all(path).unwrap() } else { std::fs::remove_file(path).unwrap() }
        }
        for (path, entry) in &names {
            if *entry == Entry::Folder {
                std::fs::create_dir(path).unwrap();
            } else {
                write_sparse(path, &contents[path]);
            }
        }
        let process = state.process;
        *state = State { process, next_id: state.next_id, ..State::default() };
        adopt(&self.root, &mut state);
        state.durable_names = state.names.clone();
    }
}

/// A generator for every file: what happens to one does not depend on which others there are.
struct Chance {
    seed: u64,
    root: PathBuf,
}

impl Chance {
    fn of(&self, path: &Path, what: &str) -> Rng {
        let below = path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy();
        let below = if below.starts_with("index/") { "index/" } else { &below }; // the files' names are times
        let mut hash = self.seed;
        for byte in below.bytes().chain(what.bytes()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Rng::with_seed(hash)
    }
}

/// Zeros stay holes.
fn write_sparse(path: &Path, bytes: &[u8]) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (place, page) in bytes.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        file.write_all_at(page, place as u64 * 4096).unwrap();
    }
}

/// Takes all that lies in a folder for durable.
fn adopt(folder: &Path, state: &mut State) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            state.names.insert(path.clone(), Entry::Folder);
            adopt(&path, state);
        } else {
            let id = state.new_file(&path);
            state.images.insert(id, Image { bytes: std::fs::read(&path).unwrap(), forgotten: BTreeSet::new() });
        }
    }
}

fn current_content(state: &State, id: FileId) -> Vec<u8> {
    if let Some(bytes) = state.nameless.get(&id) {
        return bytes.clone();
    }
    let named = state.names.iter().find(|(_, entry)| **entry == Entry::File(id));
    named.map_or_else(Vec::new, |(path, _)| std::fs::read(path).unwrap())
}

/// The names after a power cut: each is the durable or the current one.
fn surviving_names(state: &State, chance: &Chance, arrival: Arrival) -> BTreeMap<PathBuf, Entry> {
    let arrives = |path: &Path| match arrival {
        Arrival::Nothing => false,
        Arrival::Everything | Arrival::AllButOne => true,
        _ => chance.of(path, "name").bool(),
    };
    let mut decided: BTreeMap<&Path, bool> = BTreeMap::new();
    for (from, to) in &state.renames {
        let new = decided.get(from.as_path()).or(decided.get(to.as_path())).copied().unwrap_or_else(|| arrives(to));
        decided.insert(from, new);
        decided.insert(to, new);
    }
    let all: BTreeSet<&PathBuf> = state.names.keys().chain(state.durable_names.keys()).collect();
    let mut survive = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for path in all {
        let (now, durable) = (state.names.get(path), state.durable_names.get(path));
        let new = now == durable || decided.get(path.as_path()).copied().unwrap_or_else(|| arrives(path));
        let Some(entry) = (if new { now } else { durable }).copied() else { continue };
        let parent = path.parent().unwrap();
        if parent != chance.root && !folders.contains(parent) {
            continue;
        }
        if entry == Entry::Folder {
            folders.insert(path.as_path());
        }
        survive.insert(path.clone(), entry);
    }
    survive
}

fn surviving_bytes(image: &Image, mut new: Vec<u8>, rng: &mut Rng, arrival: Arrival) -> Vec<u8> {
    let old = &image.bytes;
    let len = match arrival {
        _ if new.len() == old.len() => new.len(),
        Arrival::Nothing => old.len(),
        Arrival::Everything | Arrival::AllButOne => new.len(),
        _ if rng.bool() => new.len(),
        _ => old.len(),
    };
    new.resize(len, 0);
    let mut result = old.clone();
    result.resize(len, 0);
    let sectors = (0..len.div_ceil(SECTOR)).map(|place| (place, place * SECTOR..len.min((place + 1) * SECTOR)));
    let differing: Vec<_> = sectors.filter(|(_, range)| result[range.clone()] != new[range.clone()]).collect();
    let count = differing.len();
    let chosen = rng.usize(..=count);
    let odds = rng.u8(1..=7);
    for (number, (place, range)) in differing.into_iter().enumerate() {
        let arrives = match arrival {
            Arrival::Nothing => false,
            Arrival::Everything => true,
            Arrival::Prefix => number < chosen,
            Arrival::Suffix => number >= chosen,
            Arrival::AllButOne => number + 1 != chosen,
            Arrival::Random | Arrival::Mixed => rng.u8(..8) < odds,
        };
        if arrives && !image.forgotten.contains(&place) {
            result[range.clone()].copy_from_slice(&new[range]);
        }
    }
    result
}

impl Arrival {
    fn of_file(self, rng: &mut Rng) -> Self {
        if self == Self::Mixed { ARRIVALS[rng.usize(..ARRIVALS.len() - 1)] } else { self }
    }
}

impl State {
    fn new_file(&mut self, path: &Path) -> FileId {
        self.next_id += 1;
        self.names.insert(path.to_owned(), Entry::File(self.next_id));
        self.images.insert(self.next_id, Image::default());
        self.next_id
    }

    /// A range is about to be written.
    fn dirty(&mut self, id: FileId, at: u64, len: usize) {
        if let Some(image) = self.images.get_mut(&id) {
            let sectors = at as usize / SECTOR..(at as usize + len).div_ceil(SECTOR);
            image.forgotten.retain(|place| !sectors.contains(place));
        }
    }

    /// A name goes: what its file holds may yet come back.
    fn forget_name(&mut self, path: &Path) {
        if let Some(Entry::File(id)) = self.names.remove(path) {
            if self.durable_names.values().any(|entry| *entry == Entry::File(id)) {
                self.nameless.insert(id, std::fs::read(path).unwrap_or_default());
            } else {
                self.images.remove(&id);
            }
        }
    }

    fn below<'a>(names: &'a BTreeMap<PathBuf, Entry>, folder: &'a Path) -> impl Iterator<Item = (&'a PathBuf, &'a Entry)> {
        names.range(folder.to_owned()..).take_while(move |(path, _)| path.starts_with(folder)).filter(move |(path, _)| *path != folder)
    }

    fn sync_folder(&mut self, folder: &Path) {
        let in_folder = |names: &BTreeMap<PathBuf, Entry>| -> BTreeMap<PathBuf, Entry> {
            let entries = Self::below(names, folder).filter(|(path, _)| path.parent() == Some(folder));
            entries.map(|(path, entry)| (path.clone(), *entry)).collect()
        };
        let (now, durable) = (in_folder(&self.names), in_folder(&self.durable_names));
        for (path, entry) in durable.iter().filter(|(path, entry)| now.get(*path) != Some(entry)) {
            self.durable_names.remove(path);
            if *entry == Entry::Folder {
                self.durable_names.retain(|below, _| !below.starts_with(path));
            }
        }
        self.durable_names.extend(now);
        self.renames.retain(|(from, to)| from.parent() != Some(folder) && to.parent() != Some(folder));
    }

    fn sync_file(&mut self, id: FileId, file: &std::fs::File) -> io::Result<()> {
        let bytes = read_all(file)?;
        let Some(image) = self.images.get_mut(&id) else { return Ok(()) };
        let mut kept = Vec::new();
        for place in &image.forgotten {
            let at = place * SECTOR;
            let mut old = image.bytes.get(at..image.bytes.len().min(at + SECTOR)).unwrap_or_default().to_vec();
            old.resize(SECTOR, 0);
            kept.push((at, old));
        }
        image.bytes = bytes;
        for (at, old) in kept {
            let to = image.bytes.len().min(at + SECTOR);
            if at < to {
                image.bytes[at..to].copy_from_slice(&old[..to - at]);
            }
        }
        Ok(())
    }

    /// What is dirty counts as clean from now on.
    fn forget_dirty(&mut self, id: FileId, file: &std::fs::File) -> io::Result<()> {
        let bytes = read_all(file)?;
        let Some(image) = self.images.get_mut(&id) else { return Ok(()) };
        for (place, sector) in bytes.chunks(SECTOR).enumerate() {
            let at = place * SECTOR;
            let old = image.bytes.get(at..image.bytes.len().min(at + SECTOR)).unwrap_or_default();
            let same = sector.iter().enumerate().all(|(at, byte)| old.get(at).copied().unwrap_or(0) == *byte);
            if !same {
                image.forgotten.insert(place);
            }
        }
        Ok(())
    }
}

fn read_all(file: &std::fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// One process's view of a [`Disk`].
#[derive(Debug)]
struct SimFs {
    disk: Arc<Disk>,
    process: u64,
}

impl SimFs {
    /// The disk, if the process lives and the call does not fail.
    fn begin(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.state.lock();
        begin(&mut state, self.process, call)?;
        Ok(state)
    }
}

fn dead() -> io::Error {
    io::Error::other("the process is dead")
}

fn begin(state: &mut State, process: u64, call: Call) -> io::Result<()> {
    if state.process != process {
        return Err(dead());
    }
    if let Some(left) = &mut state.dies_in
        && !matches!(call, Call::Read | Call::List)
    {
        if *left == 0 {
            state.process += 1;
            (state.dies_in, state.held, state.died) = (None, None, true);
            return Err(dead());
        }
        *left -= 1;
    }
    let mut failed = None;
    state.faults.retain_mut(|fault| {
        let hit = fault.call == call && failed.is_none();
        if hit && fault.nth == 0 {
            failed = Some(*fault);
            return false;
        }
        fault.nth -= u32::from(hit);
        true
    });
    let Some(fault) = failed else { return Ok(()) };
    state.fired.push(fault);
    Err(if fault.no_space { io::ErrorKind::StorageFull.into() } else { io::Error::from_raw_os_error(libc::EIO) })
}

impl Fs for SimFs {
    fn open(&self, path: &Path, create: bool) -> io::Result<Arc<dyn FsFile>> {
        let mut state = self.begin(Call::Open)?;
        let real = RealFs.open(path, create)?;
        let id = match state.names.get(path) {
            Some(Entry::File(id)) => *id,
            _ => state.new_file(path),
        };
        let (disk, path) = (Arc::clone(&self.disk), path.to_owned());
        Ok(Arc::new(SimFile { disk, process: self.process, id, path, real }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::CreateDir)?;
        std::fs::create_dir_all(path)?;
        for folder in path.ancestors().take_while(|folder| *folder != self.disk.root && folder.starts_with(&self.disk.root)) {
            state.names.insert(folder.to_owned(), Entry::Folder);
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::SyncDir)?;
        std::fs::File::open(path)?;
        state.sync_folder(path);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Remove)?;
        if path.is_file() {
            state.forget_name(path);
        }
        std::fs::remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Remove)?;
        let below: Vec<PathBuf> = State::below(&state.names, path).map(|(path, _)| path.clone()).collect();
        below.iter().for_each(|path| state.forget_name(path));
        state.names.remove(path);
        std::fs::remove_dir_all(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.begin(Call::Rename)?;
        if state.names.contains_key(to) {
            state.forget_name(to);
        }
        std::fs::rename(from, to)?;
        if let Some(entry) = state.names.remove(from) {
            state.names.insert(to.to_owned(), entry);
            state.renames.push((from.to_owned(), to.to_owned()));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<(PathBuf, bool)>> {
        let _state = self.begin(Call::List)?;
        RealFs.list(path)
    }

    fn exists(&self, path: &Path) -> bool {
        let state = self.disk.state.lock();
        state.process == self.process && path.exists()
    }

    fn space(&self, _path: &Path) -> io::Result<Space> {
        Ok(Space { total: 1 << 40, free: 1 << 39 })
    }
}

#[derive(Debug)]
struct SimFile {
    disk: Arc<Disk>,
    process: u64,
    id: FileId,
    path: PathBuf,
    real: Arc<dyn FsFile>,
}

impl SimFile {
    fn begin(&self, call: Call) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.disk.state.lock();
        begin(&mut state, self.process, call)?;
        Ok(state)
    }

    fn std(&self) -> io::Result<&std::fs::File> {
        self.real.as_std().ok_or_else(|| io::ErrorKind::Unsupported.into())
    }
}

impl FsFile for SimFile {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let _state = self.begin(Call::Read)?;
        self.real.read_exact_at(buffer, at)
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let begun = self.begin(Call::Write);
        let mut state = match begun {
            Ok(state) => state,
            Err(error) => {
                let state = self.disk.state.lock();
                if state.process == self.process {
                    self.real.write_all_at(&bytes[..bytes.len() / 2], at)?; // a part may have been written
                }
                return Err(error);
            }
        };
        state.dirty(self.id, at, bytes.len());
        self.real.write_all_at(bytes, at)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state.lock();
        let me = std::thread::current().id();
        let is_held = |state: &State| state.held.as_ref().is_some_and(|(folder, other)| self.path.starts_with(folder) && *other != me);
        while state.process == self.process && is_held(&state) {
            if self.disk.released.wait_for(&mut state, LONGEST_HOLD).timed_out() {
                state.held = None;
            }
        }
        if let Err(error) = begin(&mut state, self.process, Call::Sync) {
            if state.process == self.process {
                state.forget_dirty(self.id, self.std()?)?;
            }
            return Err(error);
        }
        state.sync_file(self.id, self.std()?)
    }

    fn write_back(&self, _at: u64, _len: u64) -> io::Result<()> {
        if self.disk.state.lock().process == self.process { Ok(()) } else { Err(dead()) }
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        let _state = self.begin(Call::Allocate)?;
        self.real.allocate(at, len)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let _state = self.begin(Call::SetLen)?;
        self.real.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        let _state = self.begin(Call::Read)?;
        self.real.len()
    }

    fn modified_ms(&self) -> io::Result<i64> {
        Ok(0) // the test's clock is not the machine's
    }

    fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
        let _state = self.begin(Call::Read)?;
        self.real.next_data(at)
    }

    fn as_std(&self) -> Option<&std::fs::File> {
        self.real.as_std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Rig {
        folder: tempfile::TempDir,
        disk: Arc<Disk>,
    }

    impl Rig {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let disk = Disk::new(folder.path());
            Self { folder, disk }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn read(&self, name: &str) -> Option<Vec<u8>> {
            std::fs::read(self.at(name)).ok()
        }
    }

    /// What `look` gives after cuts with many seeds, of a disk on which `act` was done.
    fn outcomes<T: Ord>(arrival: Arrival, act: impl Fn(&Rig, &dyn Fs), look: impl Fn(&Rig) -> T) -> BTreeSet<T> {
        let outcome = |seed| {
            let rig = Rig::new();
            act(&rig, &*rig.disk.process());
            rig.disk.cut(&mut Rng::with_seed(seed), arrival);
            look(&rig)
        };
        (0..64).map(outcome).collect()
    }

    fn file(rig: &Rig, fs: &dyn Fs, name: &str, bytes: &[u8]) -> Arc<dyn FsFile> {
        let file = fs.open(&rig.at(name), true).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_is_old_or_new() {
        let act = |rig: &Rig, fs: &dyn Fs| {
            let file = file(rig, fs, "f", &[1; 4 * SECTOR]);
            file.sync_data().unwrap();
            fs.sync_dir(rig.folder.path()).unwrap();
            file.write_all_at(&[2; 3 * SECTOR], 0).unwrap();
        };
        let heads = |rig: &Rig| rig.read("f").unwrap().chunks(SECTOR).map(|sector| sector[0]).collect::<Vec<u8>>();
        assert_eq!(outcomes(Arrival::Nothing, act, heads), [vec![1, 1, 1, 1]].into());
        assert_eq!(outcomes(Arrival::Everything, act, heads), [vec![2, 2, 2, 1]].into());
        assert_eq!(outcomes(Arrival::Prefix, act, heads).len(), 4);
        assert_eq!(outcomes(Arrival::Suffix, act, heads).len(), 4);
        assert_eq!(outcomes(Arrival::Random, act, heads).len(), 8);
        assert!(outcomes(Arrival::AllButOne, act, heads).contains(&vec![2, 1, 2, 1]));
        let unsynced = |rig: &Rig, fs: &dyn Fs| {
            file(rig, fs, "f", b"12345");
            fs.sync_dir(rig.folder.path()).unwrap();
        };
        let expected = [Some(vec![]), Some(vec![0; 5]), Some(b"12345".to_vec())];
        assert_eq!(outcomes(Arrival::Random, unsynced, |rig| rig.read("f")), expected.into());
    }

    #[test]
    fn names_are_durable_with_their_folder_and_renames_are_whole() {
        let create = |rig: &Rig, fs: &dyn Fs| {
            fs.create_dir_all(&rig.at("d")).unwrap();
            file(rig, fs, "d/f", b"x").sync_data().unwrap();
            fs.sync_dir(&rig.at("d")).unwrap();
        };
        let there = |rig: &Rig| rig.at("d/f").exists();
        assert_eq!(outcomes(Arrival::Nothing, create, there), [false].into(), "its folder has no name");
        assert_eq!(outcomes(Arrival::Random, create, there), [false, true].into());
        let all = |rig: &Rig, fs: &dyn Fs| {
            create(rig, fs);
            fs.sync_dir(rig.folder.path()).unwrap();
        };
        assert_eq!(outcomes(Arrival::Nothing, all, there), [true].into());
        let remove = |rig: &Rig, fs: &dyn Fs| {
            all(rig, fs);
            fs.remove_dir_all(&rig.at("d")).unwrap();
        };
        assert_eq!(outcomes(Arrival::Nothing, remove, |rig| rig.read("d/f")), [Some(b"x".to_vec())].into());
        assert_eq!(outcomes(Arrival::Everything, remove, there), [false].into());
        let rename = |rig: &Rig, fs: &dyn Fs| {
            file(rig, fs, "a", b"old").sync_data().unwrap();
            file(rig, fs, "b", b"new").sync_data().unwrap();
            fs.sync_dir(rig.folder.path()).unwrap();
            fs.rename(&rig.at("b"), &rig.at("a")).unwrap();
        };
        let both = |rig: &Rig| (rig.read("a"), rig.read("b"));
        let expected = [(Some(b"new".to_vec()), None), (Some(b"old".to_vec()), Some(b"new".to_vec()))];
        assert_eq!(outcomes(Arrival::Random, rename, both), expected.into());
    }

    #[test]
    fn stores_through_a_map_are_seen_and_a_killed_process_changes_nothing() {
        let rig = Rig::new();
        let fs = rig.disk.process();
        let mapped = crate::store::mapped_file::MappedFile::create(&*fs, &rig.at("m"), 0, 8192).map(Arc::new).unwrap();
        mapped.allocate(0..8192).unwrap();
        if mapped.populate(0..8192) {
            mapped.set_mappable(8192);
        }
        mapped.appender().unwrap().append(&[7; 100]).unwrap();
        mapped.file().sync_data().unwrap();
        fs.sync_dir(rig.folder.path()).unwrap();
        rig.disk.kill();
        assert!(mapped.file().write_all_at(b"late", 0).is_err() && fs.open(&rig.at("n"), true).is_err());
        drop(mapped);
        rig.disk.cut(&mut Rng::with_seed(1), Arrival::Nothing);
        assert_eq!(rig.read("m").unwrap()[..100], [7; 100]);
        let fs = rig.disk.process();
        rig.disk.kill_at(1);
        let file = fs.open(&rig.at("m"), false).unwrap();
        assert!(!rig.disk.has_died());
        rig.disk.kill_at(0);
        assert!(file.write_all_at(b"late", 0).is_err() && rig.disk.has_died());
    }

    #[test]
    fn calls_fail_as_told_and_a_failed_sync_loses_what_was_dirty() {
        let rig = Rig::new();
        let fs = rig.disk.process();
        let file = file(&rig, &*fs, "f", &[1; 2 * SECTOR]);
        fs.sync_dir(rig.folder.path()).unwrap();
        rig.disk.inject(Fault { call: Call::Sync, nth: 0, no_space: false });
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), Some(libc::EIO));
        file.write_all_at(&[2; SECTOR], SECTOR as u64).unwrap();
        file.sync_data().unwrap();
        rig.disk.inject(Fault { call: Call::Write, nth: 1, no_space: true });
        file.write_all_at(b"x", 0).unwrap();
        assert_eq!(file.write_all_at(b"yz", 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(rig.read("f").unwrap()[..2], [b'y', 1], "half of it");
        assert_eq!(rig.disk.heal().len(), 2);
        rig.disk.cut(&mut Rng::with_seed(1), Arrival::Nothing);
        let bytes = rig.read("f").unwrap();
        assert_eq!((bytes[0], bytes[SECTOR]), (0, 2), "the first sector counted as clean");
    }

    #[test]
    fn held_syncs_wait_and_fail_with_the_process() {
        for kill in [false, true] {
            let rig = Rig::new();
            let fs = rig.disk.process();
            let file = file(&rig, &*fs, "f", b"x");
            rig.disk.hold_syncs(rig.folder.path());
            let (sender, receiver) = crossbeam::channel::bounded(1);
            let thread = crate::runtime::thread::Thread::spawn("", "sync", move || sender.send(file.sync_data().is_ok()).unwrap());
            assert!(receiver.try_recv().is_err());
            if kill {
                rig.disk.kill()
            } else {
                rig.disk.release_syncs()
            }
            assert_eq!(receiver.recv().unwrap(), !kill);
            thread.unwrap().join();
        }
    }
}
