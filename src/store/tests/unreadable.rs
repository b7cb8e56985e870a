//! Pages of the log that the disk does not give back are an error for whoever wants them, not the end of the process.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn messages_that_cannot_be_read_wait_and_the_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let fs = Arc::new(TestFs::default());
    let trouble = Arc::clone(&fs.trouble);
    let store = open_with(config(folder.path(), FlushDiskType::Sync), fs).unwrap();
    for number in 0..500 {
        put(&store, "T", 0, &body(number, 500));
    }
    settled(&store);
    trouble.sync_fails.store(true, Ordering::Relaxed);
    store.put(&draft("T", 0, "", b"x")).unwrap();
    until("the disk is known to fail", || store.sync_failure().is_some());
    let file = std::fs::File::options().write(true).open(log_file(folder.path(), FILE_SIZE)).unwrap();
    file.set_len(4096).unwrap(); // its pages are gone, as those of a broken sector

    let (mut at, mut read, mut waiting) = (0, 0, None);
    while waiting.is_none() {
        let result = store.get("T", 0, at, &GetLimits::default(), &AllMessages);
        match result.status {
            GetStatus::Found => {
                read += result.messages;
                at = result.next_begin_offset;
            }
            GetStatus::OffsetFoundNull => waiting = Some(result.next_begin_offset),
            other => panic!("{other:?} at {at}"),
        }
    }
    assert_eq!((waiting, read as i64), (Some(at), at), "no message is passed over");
    assert!((60..300).contains(&at), "{at}");
    assert!(store.message_at("T", 0, at).is_none(), "to be tried again");
    assert_eq!(store.store_time("T", 0, at), -1);
    assert!(store.message_at("T", 0, at - 1).unwrap().1.is_some());
    assert!(store.record_at(FILE_SIZE as i64 + 8192).is_none());
    assert!(!store.query("T", "k", 64, 0, i64::MAX).records.is_empty());
    assert_eq!(store.get("T", 0, 499, &GetLimits::default(), &AllMessages).status, GetStatus::Found, "other files are");
    assert!(store.stats().earliest_store_timestamp > 0);
    assert!(!store.shutdown(DEADLINE).clean);
}
