//! `checkpoint`: how far each derived file was flushed (store.md 11).
