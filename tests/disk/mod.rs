//! Disks for tests: small ones that are mounted for the test alone, and calls that fail on order.

#![allow(dead_code, reason = "each test uses what it needs")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system of its own, unmounted and forgotten at the end.
pub struct Disk {
    /// Where it is mounted.
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

/// Kinds of file systems.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Tmpfs,
    /// In a file, through a loop device.
    Ext4,
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{program} {}: {text}", arguments.join(" "))) }
}

impl Disk {
    /// Mounts a disk of `mib` MiB; `None`, with the reason on standard error, where that is not permitted.
    pub fn mount(kind: Kind, mib: u64) -> Option<Self> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("disk");
        std::fs::create_dir(&path).expect("a folder");
        let image = folder.path().join("image");
        let (image, target) = (image.to_str().expect("text"), path.to_str().expect("text"));
        let mounted = match kind {
            Kind::Tmpfs => run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", target]),
            Kind::Ext4 => {
                File::create(image).expect("image").set_len(mib << 20).expect("length");
                run("mkfs.ext4", &["-q", "-m", "0", image]).and_then(|()| run("mount", &["-o", "loop", image, target]))
            }
        };
        match mounted {
            Ok(()) => Some(Self { path, _folder: folder }),
            Err(why) => {
                eprintln!("skipped, no {kind:?} disk can be mounted here: {why}");
                None
            }
        }
    }

    /// Mounts it again with options.
    pub fn remount(&self, options: &str) -> Result<(), String> {
        run("mount", &["-o", &format!("remount,{options}"), self.path.to_str().expect("text")])
    }

    /// Free bytes.
    pub fn free(&self) -> u64 {
        let disk = rustix::fs::statvfs(&self.path).expect("statvfs");
        disk.f_bavail * disk.f_frsize
    }

    /// A file that leaves `free` bytes to others.
    pub fn fill(&self, free: u64) -> Ballast {
        let path = self.path.join("ballast");
        let file = File::create(&path).expect("ballast");
        let ballast = Ballast(path);
        let zeros = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            let piece = self.free().saturating_sub(free).min(zeros.len() as u64) as usize;
            if piece == 0 || file.write_all_at(&zeros[..piece], at).is_err() {
                return ballast;
            }
            let _ = file.sync_data(); // so that what is free is known
            at += piece as u64;
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.path.to_str().expect("text")]);
    }
}

/// Takes space until it is dropped.
pub struct Ballast(PathBuf);

impl Drop for Ballast {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Calls of a server that fail on order (`faulty.c`, preloaded into it).
pub struct Faults {
    folder: tempfile::TempDir,
}

impl Faults {
    /// Nothing fails yet; `None`, with the reason on standard error, without a C compiler.
    pub fn compile() -> Option<Self> {
        let folder = tempfile::tempdir().expect("temporary folder");
        let library = folder.path().join("faulty.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/disk/faulty.c");
        let arguments = ["-shared", "-fPIC", "-O1", "-o", library.to_str().expect("text"), source.to_str().expect("text"), "-ldl"];
        if let Err(why) = Command::new("cc").arg("--version").output() {
            eprintln!("skipped, there is no C compiler: {why}");
            return None;
        }
        run("cc", &arguments).expect("faulty.c compiles");
        Some(Self { folder })
    }

    /// What a server's environment must have.
    pub fn environment(&self) -> [(&'static str, PathBuf); 2] {
        [("LD_PRELOAD", self.folder.path().join("faulty.so")), ("PETREL_FAULTS", self.folder.path().join("rules"))]
    }

    /// From now on these fail, and nothing else: call (sync, write, read, open), part of the path, errno.
    pub fn fail(&self, rules: &[(&str, &str, i32)]) {
        let text: String = rules.iter().map(|(call, part, errno)| format!("{call} {part} {errno}\n")).collect();
        let fresh = self.folder.path().join("fresh");
        std::fs::write(&fresh, text).expect("rules");
        std::fs::rename(&fresh, self.folder.path().join("rules")).expect("rules");
    }
}
