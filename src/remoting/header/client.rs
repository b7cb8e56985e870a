//! Headers of client management: unregister, consumer list, running info.
