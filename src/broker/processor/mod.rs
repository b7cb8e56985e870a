//! Request processors, one file per family.
