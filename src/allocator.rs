//! The allocator of the executable: jemalloc, set for a small footprint.
//!
//! Two arenas instead of four per core; memory that was freed goes back to the system within a second, by a background thread, so that an
//! idle server gives back what a burst took.
#![allow(unsafe_code, reason = "jemalloc reads its settings from an exported symbol")]

use tikv_jemallocator::Jemalloc;

#[global_allocator]
static GLOBAL: Jemalloc = Jemalloc;

const SETTINGS: &std::ffi::CStr = c"narenas:2,background_thread:true,max_background_threads:1,dirty_decay_ms:1000,muzzy_decay_ms:0";

/// A pointer to the settings, as C sees it.
#[repr(transparent)]
pub struct Settings(*const std::ffi::c_char);

// SAFETY: the pointer leads to a constant; nobody writes there.
unsafe impl Sync for Settings {}

// SAFETY: the name is the one that jemalloc (built with its prefix) looks for, and the type is what it expects there: a pointer to a text
// that ends with a zero byte and lives as long as the process.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: Settings = Settings(SETTINGS.as_ptr());
