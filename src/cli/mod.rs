//! The command line: roles (server, namesrv, broker) and tools.
