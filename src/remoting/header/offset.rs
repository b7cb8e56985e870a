//! Headers of offset requests (14, 15, 29 to 32).
