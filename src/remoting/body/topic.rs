//! Bodies about topics.
