//! Bodies of administration: statistics, connections, runtime information.
