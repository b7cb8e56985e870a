//! Headers of topic, group and broker administration.
