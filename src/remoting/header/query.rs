//! Headers of message look-ups (12, 33, 36).
