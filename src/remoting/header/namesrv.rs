//! Headers that name servers read and write.
