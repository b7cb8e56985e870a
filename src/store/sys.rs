//! Four calls of the C library that no crate of ours wraps safely.
//!
//! Each takes a borrowed descriptor, so the file is open for as long as the call lasts.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Locks byte 0 of a file for this open file description (`F_OFD_SETLK`), exclusively, without waiting. It conflicts with
/// the record lock that a Java broker takes and with a second broker in this process; it goes with the descriptor.
///
/// # Errors
/// The system's; `WouldBlock` when another holds it.
pub(super) fn lock_first_byte(file: BorrowedFd<'_>) -> io::Result<()> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0, // must be 0 for locks of this kind
    };
    // SAFETY: the descriptor is open (borrowed), and the kernel reads `lock`, which outlives the call, and writes nothing.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) { Err(io::ErrorKind::WouldBlock.into()) } else { Err(error) }
}

/// Whether another holds the lock of [`lock_first_byte`] on a file, without taking it (`F_OFD_GETLK`). The process is known when
/// it is a record lock, as a Java broker's.
///
/// # Errors
/// The system's.
pub(super) fn first_byte_lock(file: BorrowedFd<'_>) -> io::Result<Option<Option<u32>>> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 1,
        l_pid: 0, // must be 0 for locks of this kind
    };
    // SAFETY: the descriptor is open (borrowed), and the kernel reads and writes `lock`, which outlives the call and which nobody
    // else sees, and nothing besides.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let free = libc::c_int::from(lock.l_type) == libc::F_UNLCK;
    Ok((!free).then(|| u32::try_from(lock.l_pid).ok().filter(|pid| *pid > 0)))
}

/// Writes the dirty pages of a range out and waits for them (`sync_file_range`). No promise of durability.
///
/// # Errors
/// The system's; a failed write of any page of the file since the last call of this kind.
pub(super) fn write_back(file: BorrowedFd<'_>, at: u64, len: u64) -> io::Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let (Ok(at), Ok(len)) = (i64::try_from(at), i64::try_from(len)) else { return Err(io::ErrorKind::InvalidInput.into()) };
    // SAFETY: the descriptor is open (borrowed); the call takes numbers only.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), at, len, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
