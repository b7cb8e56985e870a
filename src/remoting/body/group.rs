//! Bodies about consumer groups.
