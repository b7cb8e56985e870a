//! Bits of a message's `sysFlag` and of a pull request's `sysFlag`.

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// Several tags.
pub const MULTI_TAGS: i32 = 0x2;
/// Mask of the transaction type.
pub const TRANSACTION_MASK: i32 = 0xC;
/// Not a transaction.
pub const TRANSACTION_NOT: i32 = 0;
/// Half message.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// Committed message.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// Rolled back.
pub const TRANSACTION_ROLLBACK: i32 = 0xC;
/// The born host takes 16 address bytes.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host takes 16 address bytes.
pub const STORE_HOST_V6: i32 = 0x20;
/// The client must split an inner batch.
pub const NEED_UNWRAP: i32 = 0x40;
/// The record is an inner batch.
pub const INNER_BATCH: i32 = 0x80;
/// Mask of the compression type.
pub const COMPRESSION_MASK: i32 = 0x700;

/// Pull: commit the offset that comes along.
pub const PULL_COMMIT_OFFSET: i32 = 1;
/// Pull: may be held.
pub const PULL_SUSPEND: i32 = 2;
/// Pull: the subscription text is in the request.
pub const PULL_SUBSCRIPTION: i32 = 4;
/// Pull: class filter (no longer supported by any server).
pub const PULL_CLASS_FILTER: i32 = 8;
/// Pull: lite pull.
pub const PULL_LITE: i32 = 16;

/// The transaction type of a message's flags.
pub const fn transaction_type(flags: i32) -> i32 {
    flags & TRANSACTION_MASK
}
