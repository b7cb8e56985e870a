//! The client library: blocking calls and callbacks on threads.
