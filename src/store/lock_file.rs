//! One process per store, and the mark of an unclean end.
//!
//! `lock`: byte 0 is locked for as long as the store is open, in a way that excludes a Java broker and a second broker of
//! this process alike; taken before anything is read. `abort`: exists from then on until a clean stop; its existence at
//! start means that the last run ended otherwise. Its content is the process id.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::is_no_space;
use super::error::StoreError;
use super::fs::{Fs, FsFile};
use super::sys;

/// The store's lock; released when dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: Arc<dyn FsFile>,
}

impl StoreLock {
    /// Takes the lock of the store in `root`.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder where known; the system's.
    pub(super) fn take(root: &Path, fs: &dyn Fs) -> Result<Self, StoreError> {
        let path = root.join("lock");
        let failed = |error| StoreError::Io("lock", path.clone(), error);
        let file = fs.open(&path, true).map_err(failed)?;
        let real = file.as_std().ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
        match sys::lock_first_byte(real.as_fd()) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                let holder = holder_in_kernel(real).or_else(|| AbortMark::read_pid(root));
                return Err(StoreError::Locked(path, holder));
            }
            Err(error) => return Err(failed(error)),
        }
        if file.len().map_err(failed)? == 0 {
            file.write_all_at(b"lock", 0).map_err(failed)?;
        }
        Ok(Self { _file: file })
    }

    /// What [`StoreLock::take`] would fail with because another has the store; looks only, and makes no file.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn holder(root: &Path, fs: &dyn Fs) -> Result<Option<StoreError>, StoreError> {
        let path = root.join("lock");
        let failed = |error| StoreError::Io("look at the lock", path.clone(), error);
        if !fs.exists(&path) {
            return Ok(None);
        }
        let file = fs.open_read(&path).map_err(failed)?;
        let real = file.as_std().ok_or_else(|| failed(std::io::ErrorKind::Unsupported.into()))?;
        let held = sys::first_byte_lock(real.as_fd()).map_err(failed)?;
        Ok(held.map(|pid| StoreError::Locked(path.clone(), pid.or_else(|| AbortMark::read_pid(root)))))
    }
}

/// The process that `/proc/locks` names for a lock on this file. Locks of an open file description (ours) have none there.
fn holder_in_kernel(file: &std::fs::File) -> Option<u32> {
    let inode = format!(":{}", file.metadata().ok()?.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().filter(|line| !line.contains("->")).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let held = fields.get(5)?.ends_with(&inode);
        held.then(|| fields[4].parse().ok())?
    })
}

/// The file `abort`.
#[derive(Debug)]
pub(super) struct AbortMark {
    root: PathBuf,
    path: PathBuf,
    fs: Arc<dyn Fs>,
}

impl AbortMark {
    /// Creates the mark, durably; says whether there was one.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create(root: &Path, fs: &Arc<dyn Fs>) -> Result<(Self, bool), StoreError> {
        let mark = Self { root: root.to_owned(), path: root.join("abort"), fs: Arc::clone(fs) };
        let existed = fs.exists(&mark.path);
        match mark.write() {
            Err(error) if existed => log::warn!("abort mark of the last run stays as it is: {error}"), // a full disk
            written => written?,
        }
        Ok((mark, existed))
    }

    fn write(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io("write", self.path.clone(), error);
        let file = self.fs.open(&self.path, true).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        match file.write_all_at(std::process::id().to_string().as_bytes(), 0) {
            Err(error) if is_no_space(&error) => log::warn!("abort mark without a process id: path={} error={error}", self.path.display()),
            written => written.map_err(failed)?,
        }
        file.sync_data().map_err(failed)?;
        self.fs.sync_dir(&self.root).map_err(failed)
    }

    /// Removes the mark, durably: everything is on disk.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn remove(&self) -> Result<(), StoreError> {
        let failed = |error| StoreError::Io("remove", self.path.clone(), error);
        self.fs.remove_file(&self.path).map_err(failed)?;
        self.fs.sync_dir(&self.root).map_err(failed)
    }

    /// The process that wrote the mark, if it lives.
    fn read_pid(root: &Path) -> Option<u32> {
        let pid: u32 = std::fs::read_to_string(root.join("abort")).ok()?.trim().parse().ok()?;
        Path::new("/proc").join(pid.to_string()).exists().then_some(pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fs::RealFs;

    #[test]
    fn a_second_store_of_this_process_is_kept_out_and_told_who_is_in() {
        let folder = tempfile::tempdir().unwrap();
        let fs = RealFs::shared();
        let lock = StoreLock::take(folder.path(), &*fs).unwrap();
        let (mark, existed) = AbortMark::create(folder.path(), &fs).unwrap();
        assert!(!existed);
        assert!(matches!(StoreLock::holder(folder.path(), &*fs).unwrap(), Some(StoreError::Locked(_, Some(_)))));
        let error = StoreLock::take(folder.path(), &*fs).unwrap_err();
        assert!(matches!(&error, StoreError::Locked(path, Some(pid)) if path.ends_with("lock") && *pid == std::process::id()), "{error}");
        assert!(AbortMark::create(folder.path(), &fs).unwrap().1, "the mark of a run that has not ended");
        mark.remove().unwrap();
        assert!(!AbortMark::create(folder.path(), &fs).unwrap().1);
        drop(lock);
        assert!(StoreLock::holder(folder.path(), &*fs).unwrap().is_none());
        StoreLock::take(folder.path(), &*fs).unwrap();
        assert_eq!(std::fs::read(folder.path().join("lock")).unwrap(), b"lock");
    }

    #[test]
    fn a_record_lock_of_another_process_keeps_us_out_and_the_kernel_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let script =
            "import fcntl,os,sys\nf=open(sys.argv[1],'w')\nfcntl.lockf(f,fcntl.LOCK_EX,1)\nprint('in',flush=True)\nsys.stdin.read()";
        let child = std::process::Command::new("python3")
            .args(["-c", script])
            .arg(&path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let Ok(mut child) = child else { return eprintln!("skipped: no python3") };
        let mut line = [0; 2];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let seen = StoreLock::holder(folder.path(), &RealFs).unwrap();
        assert!(matches!(&seen, Some(StoreError::Locked(_, Some(pid))) if *pid == child.id()), "{seen:?}");
        let error = StoreLock::take(folder.path(), &RealFs).unwrap_err();
        assert!(matches!(&error, StoreError::Locked(_, Some(pid)) if *pid == child.id()), "{error}");
        drop(child.stdin.take());
        child.wait().unwrap();
        StoreLock::take(folder.path(), &RealFs).unwrap();
    }
}
