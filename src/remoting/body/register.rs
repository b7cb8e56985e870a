//! Body of 103, plain and compressed.
