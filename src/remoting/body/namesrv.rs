//! Small bodies of the name server: topic lists, KV tables.
